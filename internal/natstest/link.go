package natstest

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"time"
)

// link is one connection through a gate: two pairs of pumps between the client's end and the server's.
type link struct {
	gate      *Gate
	near, far net.Conn
	up, down  *flow
	once      sync.Once
	done      chan struct{}

	handshake bool // still going on; guarded by gate.mu
}

func newLink(g *Gate, near, far net.Conn) *link {
	l := &link{gate: g, near: near, far: far, done: make(chan struct{}), handshake: true}
	l.up = &flow{link: l, dir: ToServer, src: near, dst: far, signal: make(chan struct{}, 1)}
	l.down = &flow{link: l, dir: FromServer, src: far, dst: near, signal: make(chan struct{}, 1)}
	return l
}

func (l *link) start() {
	for _, f := range []*flow{l.up, l.down} {
		go f.receive()
		go f.deliver()
	}
}

func (l *link) wake() {
	l.up.wake()
	l.down.wake()
}

// close ends the link and its pumps. What is queued is lost.
func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		l.near.Close()
		l.far.Close()
		l.gate.forget(l)
	})
}

var (
	crlf = []byte("\r\n")
	pong = []byte("PONG\r\n")
)

// flow carries one direction of a link. Its sender must never wait for the delay or a hold, because senders hold locks
// while they write: so one pump takes everything in at once, and another one delivers it when it is due.
type flow struct {
	link     *link
	dir      Direction
	src, dst net.Conn
	signal   chan struct{} // the head of the queue, or the gate, has changed

	queue []chunk // guarded by link.gate.mu
}

// chunk is some bytes and when they arrive. One without bytes says that the sender has closed.
type chunk struct {
	data []byte
	due  time.Time
}

func (f *flow) wake() {
	select {
	case f.signal <- struct{}{}:
	default:
	}
}

func (f *flow) receive() {
	buf := make([]byte, 32<<10)
	var rest []byte
	for {
		n, err := f.src.Read(buf)
		rest = append(rest, buf[:n]...)
		for len(rest) > 0 {
			k := len(rest)
			if f.paced() {
				k = messageLen(rest)
			}
			if k == 0 {
				break
			}
			f.push(bytes.Clone(rest[:k]))
			rest = rest[:copy(rest, rest[k:])]
		}
		if err != nil {
			f.push(nil)
			return
		}
	}
}

// paced tells whether the flow takes an instant for each message. The server handles messages that arrive together in
// several goroutines, e.g. a publish and a direct get, and in no reproducible order. Many arrive together after a hold, or
// when nats.go has reconnected and sends what it had buffered.
func (f *flow) paced() bool { return f.dir == ToServer && f.link.gate.skew > 0 }

// messageLen returns the length of the first message of what a NATS client sends, 0 if it is not complete.
func messageLen(b []byte) int {
	i := bytes.Index(b, crlf)
	if i < 0 {
		return 0
	}
	n := i + len(crlf)
	if bytes.HasPrefix(b, []byte("PUB ")) || bytes.HasPrefix(b, []byte("HPUB ")) {
		size, err := strconv.Atoi(string(b[bytes.LastIndexByte(b[:i], ' ')+1 : i]))
		if err != nil {
			return len(b) // let the server find fault with it
		}
		n += size + len(crlf)
	}
	if n > len(b) {
		return 0
	}
	return n
}

func (f *flow) push(data []byte) {
	g := f.link.gate
	g.mu.Lock()
	c := chunk{data: data, due: time.Now()}
	if !f.link.handshake {
		c.due = c.due.Add(g.delay)
	} else if f.dir == FromServer && bytes.Contains(data, pong) {
		f.link.handshake = false // the last of it: INFO, CONNECT and PING, PONG
	}
	if n := len(f.queue); n > 0 && c.due.Before(f.queue[n-1].due) {
		c.due = f.queue[n-1].due // the delay was made shorter: bytes do not overtake
	}
	f.queue = append(f.queue, c)
	g.mu.Unlock()
	f.wake()
}

// deliver ends the link when the sender has closed and everything from it has arrived. If the receiver has closed, that
// is up to the other direction: what the receiver sent before is still to be delivered, like the reason of its closing.
func (f *flow) deliver() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		data, ok := f.next(timer)
		if !ok {
			return
		}
		if data == nil {
			f.link.close()
			return
		}
		if _, err := f.dst.Write(data); err != nil {
			return
		}
		if f.paced() && !f.shaking() {
			time.Sleep(time.Nanosecond)
		}
	}
}

// next waits for the next chunk to be due. It reports false when the link has ended.
func (f *flow) next(timer *time.Timer) (data []byte, ok bool) {
	for {
		wait := f.wait()
		if wait == 0 {
			return f.pop(), true
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-f.signal:
		case <-due:
		case <-f.link.done:
			return nil, false
		}
	}
}

// wait returns how long it takes until the head of the queue is due: 0 is now, and -1 is until something changes.
func (f *flow) wait() time.Duration {
	g := f.link.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	held := g.held&f.dir != 0 || g.mute && f.dir == ToServer
	if len(f.queue) == 0 || held && !f.link.handshake {
		return -1
	}
	return max(0, time.Until(f.queue[0].due))
}

func (f *flow) shaking() bool {
	f.link.gate.mu.Lock()
	defer f.link.gate.mu.Unlock()
	return f.link.handshake
}

func (f *flow) pop() []byte {
	g := f.link.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	c := f.queue[0]
	f.queue[0] = chunk{}
	f.queue = f.queue[1:]
	return c.data
}
