package natstest

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// reconnectWait is short for the sake of tests in real time; nats.go's own default is 2 s with random jitter.
const reconnectWait = 250 * time.Millisecond

// connectTimeout is for connecting in real time, where nats.go's own 2 s are short for a process that gets no processor for a while. In a
// bubble a new connection takes no time, and tests of those that hang are about the default.
const connectTimeout = 30 * time.Second

// Client is one worker's own connection to the server, and the network in between.
type Client struct {
	Name string

	gate *Gate
	conn *nats.Conn
	js   jetstream.JetStream
}

// connect makes a client behind a gate of its own.
func connect(name string, gate *Gate, opts []nats.Option, jsOpts ...jetstream.JetStreamOpt) (*Client, error) {
	timeout := nats.DefaultTimeout
	if gate.skew == 0 { // not in a bubble
		timeout = connectTimeout
	}
	opts = append([]nats.Option{
		nats.Name(name),
		nats.Timeout(timeout),
		nats.InProcessServer(gate),
		nats.MaxReconnects(-1),
		// No jitter, but an interval of its own for each client: reproducible, and never at the same instant.
		nats.CustomReconnectDelay(func(int) time.Duration { return reconnectWait + gate.skew }),
		// The default handler prints to stderr every disconnection that a test makes on purpose.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect("", opts...)
	if err != nil {
		gate.destroy()
		return nil, err
	}
	js, err := jetstream.New(nc, jsOpts...)
	if err != nil {
		nc.Close()
		gate.destroy()
		return nil, err
	}
	return &Client{Name: name, gate: gate, conn: nc, js: js}, nil
}

// Conn is the client's NATS connection.
func (c *Client) Conn() *nats.Conn { return c.conn }

// JS is JetStream over the client's connection.
func (c *Client) JS() jetstream.JetStream { return c.js }

// Gate is the client's network.
func (c *Client) Gate() *Gate { return c.gate }

// Kill ends the client as the end of its process would: the network is gone at once and for good, nothing buffered is
// sent, and nobody is told. What runs on the connection sees it as closed.
func (c *Client) Kill() {
	c.gate.destroy()
	c.conn.Close()
}

// Close closes the connection as a program does that ends in good order: what is buffered is sent, and arrives.
func (c *Client) Close() { c.conn.Close() }
