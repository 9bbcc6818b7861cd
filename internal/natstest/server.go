package natstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startTimeout is how long a server may take to start; it takes some milliseconds where nothing else runs.
const startTimeout = time.Minute

// ErrStopped is what connecting to a stopped server returns.
var ErrStopped = errors.New("natstest: server is stopped")

// Option changes what the constructors of this package make.
type Option func(*config)

type config struct {
	server       server.Options
	keepStore    bool
	virtualLimit time.Duration
	js           []jetstream.JetStreamOpt // of the clients
}

// WithServerOptions lets f change the server's options: users and permissions, payload limits, JetStream off. It is called
// once for each server, before the server is made.
func WithServerOptions(f func(*server.Options)) Option {
	return func(c *config) { f(&c.server) }
}

// WithTCP makes the server listen on a free port of 127.0.0.1 too. It is of no use in a bubble, where nobody may wait for a
// socket.
func WithTCP() Option {
	return func(c *config) {
		c.server.DontListen = false
		c.server.Host, c.server.Port = "127.0.0.1", server.RANDOM_PORT
	}
}

// WithStoreDir sets the directory of file storage, which is then the caller's to remove.
func WithStoreDir(dir string) Option {
	return func(c *config) { c.server.StoreDir, c.keepStore = dir, true }
}

// WithVirtualLimit sets the virtual time after which a bubble is given up as hanging (default 24 h).
func WithVirtualLimit(d time.Duration) Option {
	return func(c *config) { c.virtualLimit = d }
}

// WithRequestTimeout sets for how long clients wait for an answer of JetStream where nobody says for how long, which by default is 5 s, and
// with [Single] a minute.
func WithRequestTimeout(d time.Duration) Option {
	return func(c *config) { c.js = append(c.js, jetstream.WithDefaultTimeout(d)) }
}

func newConfig(opts []Option) *config {
	c := &config{
		server: server.Options{
			DontListen: true, JetStream: true, NoSigs: true, NoLog: true, AuthTimeout: connectTimeout.Seconds(),
		},
		virtualLimit: 24 * time.Hour,
	}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Server is one NATS server that can be stopped and started again with what it had stored in files. Its methods may be
// called from any goroutine, Start, Stop and Restart from one at a time.
type Server struct {
	skewed    bool // give each client a delay of its own
	keepStore bool
	js        []jetstream.JetStreamOpt

	mu      sync.Mutex
	opts    server.Options
	running *server.Server // nil while stopped
	clients []*Client
	made    int // clients ever
}

// NewServer makes and starts a server. Unless told otherwise it has JetStream, keeps files in a temporary directory, logs
// nothing, and can be reached in this process only.
func NewServer(opts ...Option) (*Server, error) {
	return newServer(newConfig(opts), false)
}

func newServer(c *config, skewed bool) (*Server, error) {
	if c.server.StoreDir == "" {
		dir, err := os.MkdirTemp("", "natstest-")
		if err != nil {
			return nil, err
		}
		c.server.StoreDir = dir
	}
	s := &Server{opts: c.server, keepStore: c.keepStore, skewed: skewed, js: c.js}
	if err := s.Start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Start starts a stopped server with the same options, files and port, and returns when it takes connections.
func (s *Server) Start() error {
	s.mu.Lock()
	opts := s.opts.Clone() // the server changes its options
	running := s.running
	s.mu.Unlock()
	if running != nil {
		return errors.New("natstest: server is running already")
	}
	if opts.Port > 0 && !opts.DontListen {
		if err := waitForPort(net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port))); err != nil {
			return err
		}
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("natstest: new server: %w", err)
	}
	go ns.Start()
	if !ns.ReadyForConnections(startTimeout) {
		ns.Shutdown()
		ns.WaitForShutdown()
		return fmt.Errorf("natstest: server %q is not ready after %v", opts.ServerName, startTimeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = ns
	if a, ok := ns.Addr().(*net.TCPAddr); ok && !opts.DontListen {
		s.opts.Port = a.Port
	}
	if a := ns.ClusterAddr(); a != nil {
		s.opts.Cluster.Port = a.Port
	}
	return nil
}

// waitForPort waits until the address is free: while the server was stopped, the system may have lent its port to somebody else for a while.
func waitForPort(addr string) error {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return l.Close()
		}
		if time.Since(began) > startTimeout {
			return fmt.Errorf("natstest: the server's port is taken: %w", err)
		}
	}
}

// quietTime is how long what clients send is held before a server in a bubble is changed: virtual time passes only when the server has
// finished what it was asked before.
const quietTime = 5 * time.Millisecond

// Stop shuts the server down and waits until it has ended. Clients are disconnected and keep trying to reconnect. What was
// in memory storage is lost. A client hears of it only after the delay of its gate, so it may still believe itself
// connected when Stop or Restart returns.
//
// In a bubble, what clients send from quietTime before the shutdown on does not reach the server, as if the connections had broken then. A server with
// pulls under way sleeps for 50 ms with a lock of JetStream held, and a request that needs that lock, e.g. for a new consumer, would make virtual time stand
// still.
func (s *Server) Stop() {
	s.mu.Lock()
	ns, clients := s.running, slices.Clone(s.clients)
	s.running = nil // from here on nobody connects
	s.mu.Unlock()
	if ns == nil {
		return
	}
	s.inQuiet(clients, func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
}

// inQuiet calls f while, in a bubble, nothing that clients send reaches the server and the server has dealt with what it was sent before.
func (s *Server) inQuiet(clients []*Client, f func()) {
	if s.skewed {
		for _, c := range clients {
			c.gate.quiet(true)
		}
		time.Sleep(quietTime)
	}
	f()
	for _, c := range clients {
		c.gate.quiet(false)
	}
}

// WithoutJetStream turns JetStream off for d, while connections stay up and requests to it find nobody. It is for bubbles: the server turns
// JetStream on again without a lock that requests take, so no client may be heard meanwhile. Call it from the test's own goroutine only.
func (s *Server) WithoutJetStream(d time.Duration) error {
	s.mu.Lock()
	ns, clients, dir := s.running, slices.Clone(s.clients), s.opts.StoreDir
	s.mu.Unlock()
	if ns == nil {
		return ErrStopped
	}
	var err error
	s.inQuiet(clients, func() { err = ns.DisableJetStream() })
	if err != nil {
		return fmt.Errorf("natstest: turn JetStream off: %w", err)
	}
	time.Sleep(d)
	s.inQuiet(clients, func() {
		synctest.Wait() // tells the race detector that requests have been dealt with
		err = ns.EnableJetStream(&server.JetStreamConfig{StoreDir: dir})
	})
	if err != nil {
		return fmt.Errorf("natstest: turn JetStream on again: %w", err)
	}
	return nil
}

// Restart is Stop and Start.
func (s *Server) Restart() error {
	s.Stop()
	return s.Start()
}

// Close kills all clients, stops the server, and removes its files unless their directory was given.
func (s *Server) Close() {
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	for _, c := range clients {
		c.Kill()
	}
	s.Stop()
	if !s.keepStore {
		os.RemoveAll(s.opts.StoreDir)
	}
}

// Connect connects a new client of that name, which Close kills. It reconnects within 0.25 s whenever it can. With nats.RetryOnFailedConnect among the options the
// server may be stopped.
func (s *Server) Connect(name string, opts ...nats.Option) (*Client, error) {
	s.mu.Lock()
	var skew time.Duration
	if s.skewed {
		skew = skewOf(s.made)
	}
	s.made++
	s.mu.Unlock()
	c, err := connect(name, newGate(s.InProcessConn, skew), opts, s.js...)
	if err != nil {
		return nil, fmt.Errorf("natstest: connect %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c, nil
}

// InProcessConn connects to the server with no gate in between, for nats.InProcessServer(s) in benchmarks.
func (s *Server) InProcessConn() (net.Conn, error) {
	ns := s.Raw()
	if ns == nil {
		return nil, ErrStopped
	}
	return ns.InProcessConn()
}

// URL is where a server made WithTCP can be reached. It stays the same over a restart.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("nats://%s:%d", s.opts.Host, s.opts.Port)
}

// Raw is the running server itself, nil while it is stopped. It changes with a restart.
func (s *Server) Raw() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}
