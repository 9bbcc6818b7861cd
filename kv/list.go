package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/types"
)

const (
	// listBytes bounds what is under way during a listing.
	listBytes = 8 << 20
	// listSlack is by how much a listing asks for more than there is, so that it hears of the end.
	listSlack = 1000
	// listLimit bounds a listing, and listMargin is how much longer its consumer lives where deleting it fails. Within its life a
	// consumer looks after its own pulls, and a pull that ends by that looks like the end of the listing.
	listLimit  = 30 * time.Second
	listMargin = 5 * time.Second
	// listIdle is how long the server waits for something to deliver where it has found nothing.
	listIdle = time.Second
	// listStall is the silence after which a listing starts over.
	listStall = 2*listIdle + 500*time.Millisecond
	// listTries bounds how often a listing starts over, or asks a consumer that is not known yet.
	listTries = 5
)

// List returns the last entry, value or marker, of every key that matches one of the filters (NATS wildcards, without the
// bucket's prefix; none means all). Filters must not overlap.
//
// The result is complete, or an error that wraps types.ErrPartialListing. It is a state that some replica was in after the
// call began: a listing that contains an entry contains every key stored before it, but on a replicated bucket that replica may
// lag behind the leader. It takes 30 s at most.
func (s *Store) List(ctx context.Context, filters ...string) (map[string]Entry, error) {
	return s.list(ctx, false, filters)
}

// ListKeys is List without the values: for keys whose values are large or do not matter.
func (s *Store) ListKeys(ctx context.Context, filters ...string) (map[string]Entry, error) {
	return s.list(ctx, true, filters)
}

func (s *Store) list(ctx context.Context, headersOnly bool, filters []string) (map[string]Entry, error) {
	ctx, cancel := withDeadline(ctx, s.js)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, listLimit)
	defer cancel()
	for try := 1; ; try++ {
		l := listing{store: s, entries: map[string]Entry{}, headersOnly: headersOnly, next: 1}
		end, err := l.run(ctx, filters)
		if err == nil && end == complete {
			return l.entries, nil
		}
		if err == nil && try == listTries {
			err = errors.New("what was counted kept vanishing before it was delivered")
		}
		if err != nil {
			err = PermissionError(s.js.Conn(), "list", err, APIPrefix(s.js)+"CONSUMER.")
			return nil, fmt.Errorf("%w: %q: %w", types.ErrPartialListing, filters, readError("list", s.bucket, err))
		}
	}
}

// listing is one try to list: a consumer of its own on the stream, read to its end.
//
// The end must not be guessed. The count of pending messages, which comes with each message, is no proof: it is lowered at
// once when a value is replaced, and raised some time later, so it can be 0 while the new value waits. Two things prove that all
// was delivered: that a new consumer counts none, and that a pull which has delivered something and does not wait ends with
// "no messages": then the server has looked for another message after the last one and found none.
type listing struct {
	store       *Store
	headersOnly bool
	entries     map[string]Entry

	inbox    string // what pulls are answered on, plus the pull's number
	messages chan *nats.Msg
	consumer jetstream.Consumer
	pulls    int

	next    uint64 // number of the message to come: the consumer numbers them without gaps
	pending uint64 // about how many come after the last one
}

func (l *listing) run(ctx context.Context, filters []string) (end ending, err error) {
	nc := l.store.js.Conn()
	l.inbox = nc.NewInbox() + "."
	unsubscribe, err := l.subscribe()
	if err != nil {
		return more, err
	}
	defer unsubscribe()
	create, cancel := context.WithTimeout(ctx, listStall)
	defer cancel()
	if l.consumer, err = l.store.stream.CreateConsumer(create, l.config(ctx, filters)); err != nil {
		if ctx.Err() == nil && create.Err() != nil {
			return idle, nil // the answer is lost, perhaps with a server that has restarted: ask again
		}
		return more, err
	}
	defer l.store.dropConsumer(ctx, l.consumer.CachedInfo().Name)

	if l.pending = l.consumer.CachedInfo().NumPending; l.pending == 0 {
		return complete, nil
	}
	for end == more && err == nil {
		end, err = l.pull(ctx)
	}
	return end, err
}

// subscribe hands what comes to the inbox to l.messages, however many that are. A synchronous subscription would make room for
// 64k messages at each listing.
func (l *listing) subscribe() (unsubscribe func(), err error) {
	l.messages = make(chan *nats.Msg)
	done := make(chan struct{})
	sub, err := l.store.js.Conn().Subscribe(l.inbox+"*", func(m *nats.Msg) {
		select {
		case l.messages <- m:
		case <-done:
		}
	})
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	return func() {
		close(done)
		_ = sub.Unsubscribe()
	}, nil
}

func (l *listing) config(ctx context.Context, filters []string) jetstream.ConsumerConfig {
	deadline, _ := ctx.Deadline() // there is one
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		HeadersOnly:       l.headersOnly,
		InactiveThreshold: time.Until(deadline) + listMargin,
	}
	if len(filters) == 0 {
		filters = []string{">"}
	}
	if len(filters) == 1 {
		cfg.FilterSubject = l.store.subject(filters[0])
		return cfg
	}
	for _, f := range filters {
		cfg.FilterSubjects = append(cfg.FilterSubjects, l.store.subject(f))
	}
	return cfg
}

// ending is why a pull ended.
type ending int

const (
	more     ending = iota // it was full
	complete               // nothing is left
	idle                   // it delivered nothing for a while, which proves nothing
)

// pull asks for all that is pending and takes in what comes, until the server says why it ended.
func (l *listing) pull(ctx context.Context) (ending, error) {
	for try := 1; ; try++ {
		want := l.pending + listSlack
		if err := l.request(want); err != nil {
			return more, err
		}
		end, err := l.receive(ctx, want)
		if !errors.Is(err, nats.ErrNoResponders) || try == listTries {
			return end, err
		}
		// A new consumer in a cluster may not be known yet to the server that this connection is with.
		if err := backoff.Sleep(ctx, time.Duration(try)*5*time.Millisecond); err != nil {
			return more, err
		}
	}
}

// request sends a pull that ends at once when there is no more to deliver but has been something, and otherwise after listIdle.
func (l *listing) request(n uint64) error {
	js := l.store.js
	req, err := json.Marshal(map[string]any{
		"batch":     n,
		"max_bytes": max(listBytes, 2*js.Conn().MaxPayload()),
		"no_wait":   true,
		"expires":   listIdle,
	})
	if err != nil {
		return err
	}
	l.pulls++
	subject := APIPrefix(js) + "CONSUMER.MSG.NEXT." + l.store.Stream() + "." + l.consumer.CachedInfo().Name
	return js.Conn().PublishRequest(subject, l.replyTo(), req)
}

func (l *listing) replyTo() string { return l.inbox + strconv.Itoa(l.pulls) }

// receive takes at most n messages, until the server ends the present pull.
func (l *listing) receive(ctx context.Context, n uint64) (ending, error) {
	for got := uint64(0); got < n; {
		m, err := l.nextMsg(ctx)
		if errors.Is(err, errStalled) {
			return idle, nil
		}
		if err != nil {
			return more, err
		}
		switch status := m.Header.Get("Status"); {
		case status == "" || len(m.Data) > 0:
			if err := l.take(m); err != nil {
				return more, err
			}
			got++
		case m.Subject == l.replyTo(): // the end of an earlier pull may come late
			end, err := endOf(status, m.Header.Get("Description"))
			if end == idle && got > 0 { // its time was over in the midst of it
				end = more
			}
			return end, err
		}
	}
	return more, nil
}

// errStalled: the server delivers nothing and does not end the pull either.
var errStalled = errors.New("kv: listing stalled")

// nextMsg waits for the next message. The server answers a pull within listIdle, so a longer silence means that the consumer is
// gone, for example because the server has restarted: only another consumer helps.
func (l *listing) nextMsg(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-l.messages:
		return m, nil
	default:
	}
	stall := time.NewTimer(listStall)
	defer stall.Stop()
	select {
	case m := <-l.messages:
		return m, nil
	case <-stall.C:
		return nil, errStalled
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func endOf(status, text string) (ending, error) {
	switch {
	case status == "404":
		return complete, nil
	case status == "408":
		return idle, nil
	case status == "409" && (text == "Batch Completed" || text == "Message Size Exceeds MaxBytes"):
		return more, nil
	case status == "503":
		return more, nats.ErrNoResponders
	}
	return more, errors.New("the server ended it: " + status + " " + text)
}

func (l *listing) take(m *nats.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != l.next {
		return fmt.Errorf("message %d of the listing came as number %d", l.next, meta.Sequence.Consumer)
	}
	l.next++
	l.pending = meta.NumPending
	e := Entry{Key: l.store.key(m.Subject), Value: m.Data, Revision: meta.Sequence.Stream, Op: opOf(m.Header), Created: meta.Timestamp}
	if l.headersOnly {
		e.Value = nil
	}
	l.entries[e.Key] = e
	return nil
}

// dropConsumer deletes a listing's consumer. It may outlive ctx by a moment.
func (s *Store) dropConsumer(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.stream.DeleteConsumer(ctx, name)
}
