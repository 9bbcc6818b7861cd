package checker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The keys, stated again rather than imported.
const (
	keyLeader    = "election.leader"
	keyCommit    = "assignment._commit"
	keyLog       = "assignment._commit_log."
	keyPayload   = "assignment._payload."
	keyChunk     = "assignment._chunk."
	keyHeartbeat = "heartbeat."
)

type op uint8

const (
	opPut op = iota
	opDelete
	opExpire
)

// event is one stored message, heard live or read.
type event struct {
	key    string
	op     op
	data   []byte
	rev    uint64
	last   uint64 // revision of the message that it replaced, 0 for none
	at     time.Time
	batch  string // ID of the atomic batch
	expect string // the expected revision, as the writer stated it
	ttl    string
	read   bool // read, not heard: last and what came in between are unknown
}

func (e *event) heartbeat() bool { return strings.HasPrefix(e.key, keyHeartbeat) }

func opOf(h nats.Header) op {
	switch {
	case h.Get("Nats-Marker-Reason") == "MaxAge":
		return opExpire
	case h.Get("Nats-Marker-Reason") != "", h.Get("KV-Operation") != "":
		return opDelete
	}
	return opPut
}

func parseLive(prefix string, m *nats.Msg) (event, error) {
	e, err := parse(m)
	e.key = strings.TrimPrefix(m.Subject, prefix)
	if err == nil {
		e.last, err = strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	}
	return e, err
}

// parse reads what a direct get and a live message have in common.
func parse(m *nats.Msg) (event, error) {
	e := event{op: opOf(m.Header), data: m.Data}
	var err, err2 error
	e.rev, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	e.at, err2 = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	e.batch = m.Header.Get("Nats-Batch-Id")
	e.expect = m.Header.Get("Nats-Expected-Last-Subject-Sequence")
	e.ttl = m.Header.Get("Nats-TTL")
	return e, errors.Join(err, err2)
}

// queue hands events over without bound, so that a checker that reads from the store loses none.
type queue struct {
	mu     sync.Mutex
	events []event
	wake   chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) push(e event) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.events
	q.events = nil
	return all
}

// bucket reads one of the namespace's two buckets. The zero time of created means that it was never seen.
type bucket struct {
	nc      *nats.Conn
	name    string
	created time.Time
	ttl     time.Duration
}

var errNotFound = errors.New("nothing is stored")

const requestTimeout = 2 * time.Second

func (b *bucket) stream() string { return "KV_" + b.name }

// get reads the last message of a key: from any replica, and where that has nothing from the stream's leader.
func (b *bucket) get(ctx context.Context, key string) (event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	subject := "$KV." + b.name + "." + key
	m, err := b.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+b.stream()+"."+subject, nil)
	if err != nil {
		return event{}, err
	}
	if m.Header.Get("Status") == "" {
		e, err := parse(m)
		e.key, e.read = key, true
		return e, err
	}
	if s := m.Header.Get("Status"); s != "404" {
		return event{}, fmt.Errorf("direct get of %s: %s %s", key, s, m.Header.Get("Description"))
	}
	js, err := jetstream.New(b.nc)
	if err != nil {
		return event{}, err
	}
	stream, err := js.Stream(ctx, b.stream())
	if err != nil {
		return event{}, err
	}
	raw, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return event{}, fmt.Errorf("%w under %s", errNotFound, key)
	}
	if err != nil {
		return event{}, err
	}
	return event{key: key, op: opOf(raw.Header), data: raw.Data, rev: raw.Sequence, at: raw.Time, batch: raw.Header.Get("Nats-Batch-Id"), read: true}, nil
}

type streamInfo struct {
	Created time.Time `json:"created"`
	Config  struct {
		MaxAge   time.Duration     `json:"max_age"`
		Metadata map[string]string `json:"metadata"`
	} `json:"config"`
	Error *struct {
		Code int `json:"code"`
	} `json:"error"`
}

// info returns when the bucket's stream was created; the zero time where there is none.
func (b *bucket) info(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+b.stream(), nil)
	if err != nil {
		return time.Time{}, err
	}
	var i streamInfo
	if err := json.Unmarshal(m.Data, &i); err != nil {
		return time.Time{}, err
	}
	if i.Error != nil && i.Error.Code != 404 {
		return time.Time{}, fmt.Errorf("info of %s: code %d", b.name, i.Error.Code)
	}
	if i.Config.MaxAge > 0 {
		b.ttl = i.Config.MaxAge
		if d, err := time.ParseDuration(i.Config.Metadata["parti.heartbeat_ttl"]); err == nil {
			b.ttl = d // the age is that of the markers
		}
	}
	return i.Created, nil
}

// list returns the last message of every key under the filter, in the order of their revisions.
func (b *bucket) list(ctx context.Context, filter string) ([]event, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*requestTimeout)
	defer cancel()
	js, err := jetstream.New(b.nc)
	if err != nil {
		return nil, err
	}
	cons, err := js.CreateConsumer(ctx, b.stream(), jetstream.ConsumerConfig{
		FilterSubject: "$KV." + b.name + "." + filter,
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:     jetstream.AckNonePolicy,
		MemoryStorage: true, InactiveThreshold: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	info := cons.CachedInfo()
	defer js.DeleteConsumer(ctx, b.stream(), info.Name) // it ends by itself, too
	var events []event
	for pending := info.NumPending; pending > 0; {
		batch, err := cons.Fetch(int(min(pending, 500)), jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return nil, err
		}
		got := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return nil, err
			}
			got, pending = got+1, meta.NumPending
			events = append(events, event{
				key: strings.TrimPrefix(m.Subject(), "$KV."+b.name+"."), op: opOf(m.Headers()), data: m.Data(),
				rev: meta.Sequence.Stream, at: meta.Timestamp, read: true,
			})
		}
		if err := batch.Error(); err != nil {
			return nil, err
		}
		if got == 0 {
			break // what was pending has been replaced, and is heard live
		}
	}
	return events, nil
}
