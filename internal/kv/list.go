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
	"github.com/partigo/parti/types"
)

const (
	// listBytes bounds what is under way during a listing.
	listBytes = 8 << 20
	// listSlack is by how much a listing asks for more than there is, so that it hears of the end.
	listSlack = 1000
	// listIdle is how long the server waits for something to deliver where nothing is left.
	listIdle = 250 * time.Millisecond
	// listSilence is how long a listing waits for the server to say anything.
	listSilence = 2 * time.Second
	listTries   = 10
)

// List returns the last entry, value or marker, of every key that matches one of the filters (NATS wildcards, without the
// bucket's prefix; none means all). Filters must not overlap.
//
// The result is complete, or an error that wraps types.ErrPartialListing. It is a state that some replica was in after the
// call began: a listing that contains an entry contains every key stored before it, but on a replicated bucket that replica may
// lag behind the leader.
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
	l := listing{store: s, entries: map[string]Entry{}, headersOnly: headersOnly, next: 1}
	if err := l.run(ctx, filters); err != nil {
		err = PermissionError(s.js.Conn(), "list", err, apiPrefix(s.js)+"CONSUMER.")
		return nil, fmt.Errorf("%w: %q: %w", types.ErrPartialListing, filters, readError("list", s.bucket, err))
	}
	return l.entries, nil
}

// listing is one call of List: a consumer of its own on the stream, read to its end.
//
// The end must not be guessed. The count of pending messages, which comes with each message, is no proof: it is lowered at
// once when a value is replaced, and raised some time later, so it can be 0 while the new value waits. What proves the end is
// that the server looked for another message after the last one and found none: then it answers a pull that does not wait.
type listing struct {
	store       *Store
	headersOnly bool
	entries     map[string]Entry

	inbox    string // what pulls are answered on, plus the pull's number
	sub      *nats.Subscription
	consumer jetstream.Consumer
	pulls    int

	next    uint64 // number of the message to come: the consumer numbers them without gaps
	last    uint64 // revision of the last message
	pending uint64 // about how many come after the last one
}

func (l *listing) run(ctx context.Context, filters []string) (err error) {
	nc := l.store.js.Conn()
	l.inbox = nc.NewInbox() + "."
	if l.sub, err = nc.SubscribeSync(l.inbox + "*"); err != nil {
		return err
	}
	defer func() { _ = l.sub.Unsubscribe() }()
	if err := l.sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if l.consumer, err = l.store.stream.CreateConsumer(ctx, l.config(filters)); err != nil {
		return err
	}
	defer l.store.dropConsumer(ctx, l.consumer.CachedInfo().Name)

	if l.pending = l.consumer.CachedInfo().NumPending; l.pending == 0 {
		return nil // counted when the consumer was made, this is exact
	}
	for {
		end, err := l.pull(ctx)
		if err == nil && end == idle {
			end, err = l.recheck(ctx)
		}
		if err != nil || end == complete {
			return err
		}
	}
}

// recheck is called when the server had nothing to deliver for a while: what was pending has vanished, or the pull before took
// exactly what was left.
func (l *listing) recheck(ctx context.Context) (ending, error) {
	info, err := l.consumer.Info(ctx)
	if err != nil {
		return more, err
	}
	if info.Delivered.Consumer != l.next-1 {
		return more, fmt.Errorf("%d messages were sent, %d arrived", info.Delivered.Consumer, l.next-1)
	}
	l.pending = info.NumPending
	if info.Delivered.Stream > l.last || l.pending == 0 { // it has looked beyond the last message, or nothing has come for listIdle
		return complete, nil
	}
	return more, nil
}

func (l *listing) config(filters []string) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:     jetstream.AckNonePolicy,
		MemoryStorage: true,
		Replicas:      1,
		HeadersOnly:   l.headersOnly,
		// Where deleting the consumer fails, the server does it after so long.
		InactiveThreshold: 5 * time.Second,
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
	idle                   // it had nothing to deliver
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
		if err := sleep(ctx, time.Duration(try)*5*time.Millisecond); err != nil {
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
	subject := apiPrefix(js) + "CONSUMER.MSG.NEXT." + l.store.Stream() + "." + l.consumer.CachedInfo().Name
	return js.Conn().PublishRequest(subject, l.replyTo(), req)
}

func (l *listing) replyTo() string { return l.inbox + strconv.Itoa(l.pulls) }

// receive takes at most n messages, until the server ends the present pull.
func (l *listing) receive(ctx context.Context, n uint64) (ending, error) {
	for n > 0 {
		m, err := l.nextMsg(ctx)
		if err != nil {
			return more, err
		}
		switch status := m.Header.Get("Status"); {
		case status == "" || len(m.Data) > 0:
			if err := l.take(m); err != nil {
				return more, err
			}
			n--
		case m.Subject == l.replyTo(): // the end of an earlier pull may come late
			return endOf(status, m.Header.Get("Description"))
		}
	}
	return more, nil
}

func (l *listing) nextMsg(ctx context.Context) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, listSilence)
	defer cancel()
	return l.sub.NextMsgWithContext(ctx)
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

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
	l.last, l.pending = meta.Sequence.Stream, meta.NumPending
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
