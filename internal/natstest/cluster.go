package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// deadAddr is what every server of a cluster advertises to the others as its own address. They must not learn the real ones,
// or they would connect around the gates. As each takes this one for its own, nobody even dials it.
const deadAddr = "127.0.0.1:1"

// clusterTimeout is how long a cluster may take to become ready, or a stream to get a leader. Less than a second is normal,
// 5 to 8 s after a partition, and as much again for each election in which servers that get no processor time do not vote.
const clusterTimeout = 2 * time.Minute

// Cluster is several servers in real time, routed over TCP. Between each two of them there are gates, one for each server's
// connections to the other.
type Cluster struct {
	tb      testing.TB
	servers []*Server
	gates   [][]*Gate // [from][to], nil on the diagonal

	mu      sync.Mutex
	clients []*Client
}

// NewCluster runs n servers until the test ends, and returns when JetStream is ready for replicated streams. Options apply to
// each server.
//
// An election may need a second attempt when the machine is busy, which takes 4 to 9 s: longer than nats.go waits by default. A request
// of JetStream's that is sent meanwhile is never answered, so wrap it in Repeat.
func NewCluster(tb testing.TB, n int, opts ...Option) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, servers: make([]*Server, n), gates: make([][]*Gate, n)}
	dir := tb.TempDir() // before Cleanup, so that it is removed after the servers have ended
	tb.Cleanup(c.close)
	targets := make([]*target, n)
	for i := range targets {
		targets[i] = &target{known: make(chan struct{})}
	}
	// One after the other, although that takes longer: servers that stand for election at the same time, each with a vote,
	// try again only after 4 to 9 s. On a busy machine it still happens.
	for i := range n {
		cfg := newConfig(append([]Option{
			WithTCP(), WithStoreDir(filepath.Join(dir, strconv.Itoa(i))), routed(i, c.routes(i, targets)),
		}, opts...))
		s, err := newServer(cfg, false)
		if err != nil {
			tb.Fatal(err)
		}
		c.servers[i] = s
		targets[i].set(s.Raw().ClusterAddr().String())
	}
	c.WaitReady()
	return c
}

// routes makes the gates from server i to the others, and returns where server i finds them.
func (c *Cluster) routes(i int, targets []*target) []*url.URL {
	urls := []*url.URL{{Scheme: "nats", Host: deadAddr}} // itself: the number of routes says how many servers there are
	c.gates[i] = make([]*Gate, len(targets))
	for to, target := range targets {
		if to != i {
			c.gates[i][to] = newGate(target.dial, 0)
			urls = append(urls, &url.URL{Scheme: "nats", Host: proxy(c.tb, c.gates[i][to])})
		}
	}
	return urls
}

func routed(i int, routes []*url.URL) Option {
	return WithServerOptions(func(o *server.Options) {
		o.ServerName = fmt.Sprintf("n%d", i)
		o.Cluster = server.ClusterOpts{Name: "natstest", Host: "127.0.0.1", Port: server.RANDOM_PORT, Advertise: deadAddr}
		o.Routes = routes
	})
}

// metaReady tells whether all running servers follow one leader, and that one knows that they are there: it places no
// replica on a server it has not heard from.
func (c *Cluster) metaReady() bool {
	running, leaders, known := 0, 0, 0
	for _, s := range c.servers {
		ns := s.Raw()
		if ns == nil {
			continue
		}
		running++
		if ns.JetStreamIsLeader() {
			leaders++
			known = len(ns.JetStreamClusterPeers())
		} else if !ns.JetStreamIsCurrent() {
			return false
		}
	}
	return leaders == 1 && known == running
}

func (c *Cluster) close() {
	c.mu.Lock()
	clients := c.clients
	c.mu.Unlock()
	for _, cl := range clients {
		cl.Kill()
	}
	for _, s := range c.servers {
		if s != nil {
			s.Close()
		}
	}
	for _, row := range c.gates {
		for _, g := range row {
			if g != nil {
				g.destroy()
			}
		}
	}
}

// WaitReady waits until the running servers agree on a JetStream leader and streams can be made, e.g. after StartServer.
func (c *Cluster) WaitReady() {
	c.tb.Helper()
	c.WaitFor(clusterTimeout, "JetStream on all running servers", c.metaReady)
}

// Server is the server at index i, counted from 0. It can be stopped and started again.
func (c *Cluster) Server(i int) *Server { return c.servers[i] }

// StopServer shuts server i down in good order: it hands its leaderships over, and writes go on within a second or so.
func (c *Cluster) StopServer(i int) { c.servers[i].Stop() }

// StartServer starts server i again, or ends the test.
func (c *Cluster) StartServer(i int) {
	c.tb.Helper()
	if err := c.servers[i].Start(); err != nil {
		c.tb.Fatal(err)
	}
}

// Isolate cuts server i off the other servers. Its clients stay connected to it.
func (c *Cluster) Isolate(i int) { c.eachGate(i, (*Gate).Cut) }

// Heal connects server i with all others again, except those that are isolated themselves by later calls. The servers find
// each other after about a second.
func (c *Cluster) Heal(i int) { c.eachGate(i, (*Gate).Heal) }

// Routes calls f for both gates between servers i and j, for what Isolate does not cover.
func (c *Cluster) Routes(i, j int, f func(*Gate)) {
	f(c.gates[i][j])
	f(c.gates[j][i])
}

func (c *Cluster) eachGate(i int, f func(*Gate)) {
	for j := range c.servers {
		if j != i {
			c.Routes(i, j, f)
		}
	}
}

// Connect connects a new client, or ends the test. It uses the first of the named servers that runs, and changes to another
// of them when that one stops; no name stands for all servers.
func (c *Cluster) Connect(name string, servers ...int) *Client {
	c.tb.Helper()
	use := c.servers
	if len(servers) > 0 {
		use = nil
		for _, i := range servers {
			use = append(use, c.servers[i])
		}
	}
	cl, err := connect(name, newGate(func() (net.Conn, error) { return dialFirst(use) }, 0), nil)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, cl)
	return cl
}

func dialFirst(servers []*Server) (net.Conn, error) {
	for _, s := range servers {
		if conn, err := s.InProcessConn(); err == nil {
			return conn, nil
		}
	}
	return nil, ErrStopped
}

// StreamLeader waits until exactly one server takes itself for the leader of a stream, and returns its index. While a leader
// is isolated there can be two: it believes in itself for up to 20 s.
func (c *Cluster) StreamLeader(stream string) int {
	c.tb.Helper()
	var leaders []int
	c.WaitFor(clusterTimeout, "one leader of stream "+stream, func() bool {
		leaders = c.StreamLeaders(stream)
		return len(leaders) == 1
	})
	return leaders[0]
}

// StreamLeaders returns all servers that take themselves for the leader of a stream at the moment.
func (c *Cluster) StreamLeaders(stream string) []int {
	var leaders []int
	for i, s := range c.servers {
		if ns := s.Raw(); ns != nil && ns.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			leaders = append(leaders, i)
		}
	}
	return leaders
}

// WaitFor returns as soon as cond holds, and ends the test if it does not hold within d.
func (c *Cluster) WaitFor(d time.Duration, what string, cond func() bool) {
	c.tb.Helper()
	waitFor(c.tb, false, d, what, cond)
}

// requestTimeout bounds one try of a request: an answer takes milliseconds, and without a leader there is none.
const requestTimeout = 5 * time.Second

// Repeat sends a request until it succeeds, and ends the test if it does not within two minutes. The request must be one that may be repeated.
func (c *Cluster) Repeat(request func(ctx context.Context) error) {
	c.tb.Helper()
	for end := time.Now().Add(clusterTimeout); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.tb.Context(), requestTimeout)
		err := request(ctx)
		cancel()
		switch {
		case err == nil:
			return
		case time.Now().After(end):
			c.tb.Fatal(err)
		}
		c.tb.Log("repeated after:", err)
	}
}

// target is a server's address for routes, which is known once it has started.
type target struct {
	addr  string
	known chan struct{}
}

func (t *target) set(addr string) {
	t.addr = addr
	close(t.known)
}

// dial waits for the address: refusing would make the other server try again a second later.
func (t *target) dial() (net.Conn, error) {
	select {
	case <-t.known:
		return net.DialTimeout("tcp", t.addr, time.Second)
	case <-time.After(startTimeout):
		return nil, errors.New("natstest: server has not started")
	}
}

// proxy leads whoever connects to the returned address through a gate, until the test ends.
func proxy(tb testing.TB, g *Gate) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _ = g.join(conn) }) // it closes conn on failure, and the server tries again
		}
	})
	tb.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// WaitSubscribed waits until every running server knows all that the client has subscribed to so far. It does not help to look whether there is
// interest in a subject, where others subscribe to it too.
func (c *Cluster) WaitSubscribed(cl *Client) {
	c.tb.Helper()
	last, err := cl.Conn().SubscribeSync(cl.Conn().NewInbox()) // subscriptions of a connection become known in their order
	if err != nil {
		c.tb.Fatal(err)
	}
	c.WaitInterest(last.Subject)
	if err := last.Unsubscribe(); err != nil {
		c.tb.Fatal(err)
	}
}

// WaitInterest waits until every running server knows that somebody subscribes to the subject. A subscription is known at once only to
// the server that it was made on; what another one publishes before it has heard of it is not delivered.
func (c *Cluster) WaitInterest(subject string) {
	c.tb.Helper()
	c.WaitFor(clusterTimeout, "interest in "+subject+" is known to all servers", func() bool {
		for _, s := range c.servers {
			if ns := s.Raw(); ns != nil && ns.GlobalAccount().Interest(subject) == 0 {
				return false
			}
		}
		return true
	})
}
