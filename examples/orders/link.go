package main

import (
	"errors"
	"net"
	"sync"
)

// link is a reader's network: nats.go dials through it, with nats.InProcessServer.
type link struct {
	dial func() (net.Conn, error)

	mu    sync.Mutex
	gone  bool
	conns []net.Conn
}

var errGone = errors.New("the network is gone")

// InProcessConn connects to the server.
func (l *link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return nil, errGone
	}
	c, err := l.dial()
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// cut closes what is open, as the end of a process does, and refuses everything from then on.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for _, c := range l.conns {
		c.Close()
	}
}
