package rig

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var errCut = errors.New("rig: the network is cut")

// Link is one worker's connection to the server. It counts what goes over the wire, protocol included.
type Link struct {
	Conn *nats.Conn
	JS   jetstream.JetStream

	sent, received atomic.Int64

	mu  sync.Mutex // guards what follows
	raw net.Conn
	cut bool
}

// Connect connects to the server at url over a link of its own.
func Connect(url, name string) (*Link, error) {
	l := &Link{}
	conn, err := nats.Connect(url, nats.Name(name), nats.SetCustomDialer(l), nats.MaxReconnects(-1),
		nats.Timeout(30*time.Second), nats.ReconnectWait(250*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, err
	}
	l.Conn = conn
	if l.JS, err = jetstream.New(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// Dial makes Link a dialler for nats.go.
func (l *Link) Dial(network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errCut
	}
	raw, err := net.DialTimeout(network, address, 30*time.Second)
	if err != nil {
		return nil, err
	}
	l.raw = raw
	return counted{raw, l}, nil
}

// Cut ends the connection for good, as the end of a process or of its network would: nothing buffered is sent.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.raw.Close()
}

// Close closes the connection in good order.
func (l *Link) Close() { l.Conn.Close() }

// Traffic is what went over connections: messages and bytes into the server, and out of it.
type Traffic struct{ InMessages, OutMessages, InBytes, OutBytes float64 }

// Traffic returns what went over the link so far.
func (l *Link) Traffic() Traffic {
	s := l.Conn.Stats()
	return Traffic{float64(s.OutMsgs), float64(s.InMsgs), float64(l.sent.Load()), float64(l.received.Load())}
}

// Minus returns what came after t.
func (t Traffic) Minus(before Traffic) Traffic {
	return Traffic{t.InMessages - before.InMessages, t.OutMessages - before.OutMessages, t.InBytes - before.InBytes, t.OutBytes - before.OutBytes}
}

// Plus returns the sum.
func (t Traffic) Plus(u Traffic) Traffic {
	return Traffic{t.InMessages + u.InMessages, t.OutMessages + u.OutMessages, t.InBytes + u.InBytes, t.OutBytes + u.OutBytes}
}

type counted struct {
	net.Conn
	link *Link
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.link.received.Add(int64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.link.sent.Add(int64(n))
	return n, err
}
