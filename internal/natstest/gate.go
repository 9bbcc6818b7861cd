package natstest

import (
	"errors"
	"net"
	"sync"
	"time"
)

// ErrCut is what dialling through a gate returns that is cut, or holds something.
var ErrCut = errors.New("natstest: network is cut")

// Direction names the ways through a gate; they can be combined.
type Direction uint8

const (
	ToServer   Direction = 1 << iota // what the client sends
	FromServer                       // what the client receives
	Both       = ToServer | FromServer
)

// Gate is one party's network: all its connections pass through it. It is open until told otherwise.
//
// A connection is a stream of bytes, of which none can be missing without breaking it. So, as with TCP, a gate never drops
// anything out of the middle: bytes are held back and delivered in order later, or lost together with the connection. The
// queues are unbounded, and neither side ever blocks in a Write because of the gate.
//
// The handshake of a new connection is exempt from delays, and while anything is held new connections are refused: nats.go
// holds a mutex from dialling to the end of the handshake, over which no time may pass in a bubble.
//
// All methods return at once and may be called from any goroutine.
type Gate struct {
	dial func() (net.Conn, error)
	skew time.Duration

	mu    sync.Mutex
	cut   bool
	gone  bool // cut for good
	held  Direction
	mute  bool // the server shuts down: nothing reaches it any more
	lossy bool
	delay time.Duration
	links map[*link]struct{}
}

// newGate returns an open gate to what dial reaches. The skew is added to every delay.
func newGate(dial func() (net.Conn, error), skew time.Duration) *Gate {
	return &Gate{dial: dial, skew: skew, delay: skew, links: make(map[*link]struct{})}
}

// InProcessConn connects through the gate; it makes Gate usable with nats.InProcessServer.
func (g *Gate) InProcessConn() (net.Conn, error) {
	near, far := net.Pipe()
	if err := g.join(far); err != nil {
		near.Close()
		return nil, err
	}
	return near, nil
}

// join connects near, the gate's end of a client's connection, with the server. It closes near on failure.
func (g *Gate) join(near net.Conn) error {
	if g.refuses() {
		near.Close()
		return ErrCut
	}
	far, err := g.dial() // not under the lock: it may take a while
	if err != nil {
		near.Close()
		return err
	}
	l := newLink(g, near, far)
	g.mu.Lock()
	if g.cut || g.held != 0 {
		g.mu.Unlock()
		l.close()
		return ErrCut
	}
	g.links[l] = struct{}{}
	g.mu.Unlock()
	l.start()
	return nil
}

func (g *Gate) refuses() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cut || g.held != 0
}

// Cut closes the connections and refuses new ones until Heal. Bytes that were under way or held are lost, so the client
// cannot know whether a request without a reply was carried out.
func (g *Gate) Cut() {
	g.mu.Lock()
	g.cut = true
	g.mu.Unlock()
	g.closeLinks()
}

// Drop closes the connections, and lets the client connect again at once.
func (g *Gate) Drop() { g.closeLinks() }

// Hold keeps the connections up, but lets no byte through in direction d until Heal, which delivers everything held. Hold(FromServer) is the network in which requests are carried out and their replies vanish;
// Hold(Both) is a black hole. Directions add up over calls.
func (g *Gate) Hold(d Direction) {
	g.mu.Lock()
	g.held |= d
	g.mu.Unlock()
}

// Lose is like Hold, except that what it held never arrives: Heal closes the connections instead of delivering. Also what
// an earlier Hold held is lost then.
func (g *Gate) Lose(d Direction) {
	g.mu.Lock()
	g.held |= d
	g.lossy = true
	g.mu.Unlock()
}

// Heal ends Cut, Hold and Lose. The delay stays.
func (g *Gate) Heal() {
	g.mu.Lock()
	lossy := g.lossy
	g.mu.Unlock()
	if lossy {
		g.closeLinks() // before the held bytes can move
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut, g.held, g.lossy = g.gone, 0, false
	for l := range g.links {
		l.wake()
	}
}

// quiet holds what the client sends while the server shuts down, beside Hold and what Heal ends.
func (g *Gate) quiet(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute = on
	for l := range g.links {
		l.wake()
	}
}

// Delay makes every byte that is sent from now on take d in each direction. In a bubble some nanoseconds that differ from
// client to client are added, also to a delay of zero, so that no two clients are heard at the same instant.
func (g *Gate) Delay(d time.Duration) {
	g.mu.Lock()
	g.delay = d + g.skew
	g.mu.Unlock()
}

// destroy cuts the gate for good.
func (g *Gate) destroy() {
	g.mu.Lock()
	g.gone = true
	g.mu.Unlock()
	g.Cut()
}

func (g *Gate) closeLinks() {
	g.mu.Lock()
	links := g.links
	g.links = make(map[*link]struct{})
	g.mu.Unlock()
	for l := range links {
		l.close()
	}
}

func (g *Gate) forget(l *link) {
	g.mu.Lock()
	delete(g.links, l)
	g.mu.Unlock()
}
