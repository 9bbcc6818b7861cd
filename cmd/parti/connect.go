package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// connection says how to reach NATS.
type connection struct {
	server, creds, nkey    string
	tlsCert, tlsKey, tlsCA string
	domain                 string
	timeout                time.Duration
}

func (c *connection) define(fs *flag.FlagSet, bounded bool) {
	fs.StringVar(&c.server, "server", cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), "`URL`s of NATS, joined by commas; default $NATS_URL")
	fs.StringVar(&c.creds, "creds", "", "credentials `file`")
	fs.StringVar(&c.nkey, "nkey", "", "`file` with the seed of an nkey")
	fs.StringVar(&c.tlsCert, "tlscert", "", "TLS certificate `file`, with -tlskey")
	fs.StringVar(&c.tlsKey, "tlskey", "", "TLS key `file`, with -tlscert")
	fs.StringVar(&c.tlsCA, "tlsca", "", "`file` with the root certificates to trust")
	fs.StringVar(&c.domain, "domain", "", "JetStream `domain`")
	if bounded {
		fs.DurationVar(&c.timeout, "timeout", defaultTimeout, "how long to try and wait")
	}
}

// client is a connection, and where to write.
type client struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	closed   <-chan struct{} // closed when the connection is, for good
	out, err io.Writer
}

func (c *connection) open(out, errs io.Writer) (*client, error) {
	closed := make(chan struct{})
	opts := []nats.Option{
		nats.Name("parti command"), nats.MaxReconnects(-1), nats.Timeout(cmp.Or(c.timeout, defaultTimeout)),
		nats.IgnoreAuthErrorAbort(), // a login that is refused now may be right when a file or the server has changed
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			_, _ = fmt.Fprintf(errs, "parti: NATS: %v\n", err)
		}),
	}
	if c.creds != "" {
		opts = append(opts, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		o, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, fmt.Errorf("%w: -nkey: %w", errUsage, err)
		}
		opts = append(opts, o)
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return nil, fmt.Errorf("%w: -tlscert and -tlskey go together", errUsage)
	}
	if c.tlsCert != "" {
		opts = append(opts, nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	if c.tlsCA != "" {
		opts = append(opts, nats.RootCAs(c.tlsCA))
	}
	nc, err := nats.Connect(c.server, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.server, err)
	}
	var js jetstream.JetStream
	if c.domain != "" {
		js, err = jetstream.NewWithDomain(nc, c.domain)
	} else {
		js, err = jetstream.New(nc)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &client{nc: nc, js: js, closed: closed, out: out, err: errs}, nil
}
