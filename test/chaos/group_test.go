package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/checker/ledger"
	"github.com/stretchr/testify/require"
)

// group is a group of reader processes over a server in this process, and the ledger of what they say.
type group struct {
	t *testing.T
	setup
	env    *natstest.Env
	js     jetstream.JetStream
	ledger *ledger.Ledger
	began  time.Time
	made   int // readers

	mu       sync.Mutex // guards what follows, and the members' fields
	owner    []owner    // by partition: who was handed something under the highest epoch
	produced []int      // by partition: counter of the last message
	lost     int        // runs that ended because a lease ran out
	lostOf   []bool     // by partition: there was one
	changed  chan struct{}
}

// owner is a run.
type owner struct {
	name  string
	epoch int64
}

// member is a reader process, seen by the parent.
type member struct {
	*proc
	g        *group
	name     string
	joined   bool
	batch    map[int]int64 // partitions and epochs of what was fetched, and not attempted to acknowledge yet
	held     bool
	late     map[int]int64 // the batch that it was frozen with, as far as it is not answered
	attempts int           // to acknowledge of that batch
	refused  int           // of them
}

// newGroup makes the streams, in files, and a bucket of offsets that forgets nothing.
func newGroup(t *testing.T, s setup) *group {
	t.Helper()
	g := &group{t: t, setup: s, env: natstest.Single(t, natstest.WithTCP()), ledger: ledger.New(s.Partitions), began: time.Now(),
		owner: make([]owner, s.Partitions), produced: make([]int, s.Partitions), lostOf: make([]bool, s.Partitions), changed: make(chan struct{})}
	g.URL = g.env.Server.URL()
	g.js = g.env.Connect("parent").JS()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, g.layout().CreateStreams(ctx, g.js, jetstream.StreamConfig{Storage: jetstream.FileStorage}))
	require.NoError(t, ledger.KeepOffsets(ctx, g.js, consumer.DefaultOffsetsBucket, 1, jetstream.FileStorage))
	return g
}

func (s setup) environ(t *testing.T) string {
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	return envSetup + "=" + string(raw)
}

// join starts a reader process. It takes part some time later.
func (g *group) join(batch int) *member {
	g.t.Helper()
	s := g.setup
	s.Batch = batch
	m := &member{g: g, name: fmt.Sprintf("r%d", g.made), batch: map[int]int64{}}
	g.made++
	m.proc = launch(g.t, roleReader, m.hear, s.environ(g.t))
	return m
}

// produce starts a producer process.
func (g *group) produce() *proc {
	g.t.Helper()
	return launch(g.t, roleProducer, func(from *proc, line []byte) {
		what, n, err := parse(line)
		if err != nil || what != saysCount || len(n) != 2 {
			from.t.Errorf("the producer said %q", line)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.produced[n[0]] = int(n[1])
	}, g.environ(g.t))
}

// parse reads a line that a process has said.
func parse(line []byte) (what byte, numbers []int64, err error) {
	fields := strings.Fields(string(line))
	if len(fields) == 0 || len(fields[0]) != 1 {
		return 0, nil, fmt.Errorf("not a line of a reader: %q", line)
	}
	for _, f := range fields[1:] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, nil, err
		}
		numbers = append(numbers, n)
	}
	return fields[0][0], numbers, nil
}

// hear takes down what a reader says.
func (m *member) hear(from *proc, line []byte) {
	what, n, err := parse(line)
	if err != nil {
		from.t.Error(err)
		return
	}
	n = append(n, 0, 0, 0, 0)
	at := ledger.Place{Reader: m.name, Partition: int(n[0]), Epoch: n[1], Sequence: uint64(n[2])}
	switch what {
	case saysHanded:
		m.g.ledger.Deliver(at, int(n[3]))
	case saysDone:
		m.g.ledger.Deliver(at, int(n[3]))
		m.g.ledger.Acknowledge(at)
	case saysAttempt:
		m.g.ledger.Acknowledge(at)
	case saysAnswer:
		m.g.ledger.Answer(at, ledger.Result(n[3]))
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.note(what, at, ledger.Result(n[3]))
	close(m.g.changed)
	m.g.changed = make(chan struct{})
}

// note keeps what the parent decides by. Held: g.mu.
func (m *member) note(what byte, at ledger.Place, result ledger.Result) {
	switch what {
	case saysJoined:
		m.joined = true
	case saysHanded, saysDone:
		if o := &m.g.owner[at.Partition]; at.Epoch > o.epoch {
			*o = owner{m.name, at.Epoch}
		}
		if what == saysHanded {
			m.batch[at.Partition] = at.Epoch
		}
	case saysAttempt:
		delete(m.batch, at.Partition)
		if epoch, ok := m.late[at.Partition]; ok && epoch == at.Epoch {
			m.attempts++
		}
	case saysAnswer:
		if epoch, ok := m.late[at.Partition]; ok && epoch == at.Epoch {
			delete(m.late, at.Partition)
			if result == ledger.Lost {
				m.refused++
			}
		}
	case saysHeld:
		m.held = true
	case saysLost:
		m.g.lost++
		m.g.lostOf[at.Partition] = true
	}
}

// waitFor waits until cond holds; it is called with the lock held.
func (g *group) waitFor(what string, cond func() bool) time.Duration {
	g.t.Helper()
	began := time.Now()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		g.mu.Lock()
		ok, changed := cond(), g.changed
		g.mu.Unlock()
		if ok {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			g.t.Fatalf("waited %v in vain for: %s; read up to %v, owners %v", patience, what, g.ledger.Progress(), g.owner)
		}
		select {
		case <-changed:
		case <-poll.C: // what the ledger knows changes without
		}
	}
}

// waitProgress waits until something new of every partition was handed out.
func (g *group) waitProgress(what string) time.Duration {
	g.t.Helper()
	from := g.ledger.Progress()
	return g.waitFor(what, func() bool {
		for p, n := range g.ledger.Progress() {
			if n <= from[p] {
				return false
			}
		}
		return true
	})
}

// waitRead waits until everything produced was handed out, however long that takes as long as it goes on.
func (g *group) waitRead() time.Duration {
	g.t.Helper()
	began := time.Now()
	for complete := false; !complete; {
		before := g.ledger.Tally().Messages
		g.waitFor("everything is read", func() bool {
			complete = g.ledger.Complete(g.produced)
			return complete || g.ledger.Tally().Messages > before
		})
	}
	return time.Since(began)
}

// waitMember waits until every one of the members owns something.
func (g *group) waitMember(members ...*member) {
	g.t.Helper()
	g.waitFor("each reader has a share", func() bool {
		seen := map[string]bool{}
		for _, o := range g.owner {
			seen[o.name] = true
		}
		for _, m := range members {
			if !seen[m.name] {
				return false
			}
		}
		return true
	})
}

// end waits until everything is read, ends all in good order, and judges.
func (g *group) end(producer *proc, members []*member, format string, args ...any) {
	g.t.Helper()
	if producer != nil {
		producer.stop()
	}
	g.waitRead()
	for _, m := range members {
		m.stop()
	}
	var streams []string
	for _, s := range g.layout().Streams(jetstream.StreamConfig{}) {
		streams = append(streams, s.Name)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	records, err := ledger.Read(ctx, g.js, streams, consumer.DefaultOffsetsBucket, readGroup)
	require.NoError(g.t, err)
	report(g.t, g.ledger, records, g.began, "%s; %d leases lost", fmt.Sprintf(format, args...), g.lost)
}

// report logs the figures of a run and fails the test for every fault.
func report(t *testing.T, l *ledger.Ledger, records *ledger.Records, began time.Time, format string, args ...any) {
	t.Helper()
	n := l.Tally()
	t.Logf("%s: %d messages and %d offsets stored; handed out %d, of them %d repeats and %d again to the same reader; %d runs; acknowledgements: %d stored, "+
		"%d refused; %v", fmt.Sprintf(format, args...), len(records.Messages), len(records.Offsets), n.Messages, n.Repeats, n.Again, n.Runs,
		n.Acknowledged, n.Refused, time.Since(began).Round(100*time.Millisecond))
	faults := l.Judge(records)
	for _, f := range faults[:min(len(faults), 10)] {
		t.Error(f)
	}
	require.LessOrEqual(t, len(faults), 10, "and more")
}
