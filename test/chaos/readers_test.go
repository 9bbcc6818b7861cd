//go:build unix

package chaos

import (
	"flag"
	"maps"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	kills    = flag.Int("kills", 2, "how many readers are killed")
	restarts = flag.Int("restarts", 2, "how many times the server is restarted under readers")
	messages = flag.Int("messages", 15_000, "how many messages are read steadily")
)

// busy is a group with a producer that never waits long.
func busy() setup {
	return setup{Partitions: 12, PerStream: 4, TTL: ttl, Pace: 4 * time.Millisecond}
}

// Readers are killed as by kill -9, and others start, while messages come in.
func TestReadersKilled(t *testing.T) {
	g := newGroup(t, busy())
	producer := g.produce()
	members := []*member{g.join(0), g.join(40), g.join(0), g.join(7)}
	g.waitMember(members...)
	var longest time.Duration
	for range *kills {
		i := rand.IntN(len(members))
		members[i].kill()
		longest = max(longest, g.waitProgress("every partition is read again after a kill"))
		members[i] = g.join([]int{0, 40, 7}[rand.IntN(3)])
		g.waitMember(members...)
	}
	g.end(producer, members, "%d kills, all partitions read again within %v (TTL %v)", *kills, longest.Round(time.Millisecond), g.TTL)
}

// Row 17: a reader is frozen past its TTL between Fetch and Ack, others take over and read on, and it is thawed. Each of its late acknowledgements
// is attempted, and refused with the error that says so.
func TestReadersFrozen(t *testing.T) {
	g := newGroup(t, busy())
	producer := g.produce()
	members := []*member{g.join(40), g.join(7), g.join(40)}
	g.waitMember(members...)
	attempted, refused := 0, 0
	for range *freezes {
		m := members[rand.IntN(len(members))]
		g.waitMember(m)
		a, r := g.freeze(m)
		attempted, refused = attempted+a, refused+r
	}
	g.end(producer, members, "%d freezes, %d late acknowledgements attempted, %d refused", *freezes, attempted, refused)
	require.GreaterOrEqual(t, attempted, *freezes)
	require.Equal(t, attempted, refused)
}

// freeze freezes a reader that has fetched messages and is about to acknowledge them, until others are handed messages of all
// these partitions under higher epochs, and counts what comes of its acknowledgements after.
func (g *group) freeze(m *member) (attempted, refused int) {
	g.t.Helper()
	m.tell("hold")
	g.waitFor("the reader is about to acknowledge", func() bool { return m.held })
	signal(g.t, m.proc, syscall.SIGSTOP)
	g.mu.Lock()
	late := maps.Clone(m.batch)
	m.late, m.attempts, m.refused = m.batch, 0, 0
	m.held, m.batch = false, map[int]int64{}
	g.mu.Unlock()
	g.waitFor("others read on under higher epochs", func() bool {
		for p, epoch := range late {
			if o := g.owner[p]; o.epoch <= epoch || o.name == m.name {
				return false
			}
		}
		return true
	})
	m.tell("go")
	signal(g.t, m.proc, syscall.SIGCONT)
	g.waitFor("the late acknowledgements are answered", func() bool { return len(m.late) == 0 })
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Equal(g.t, len(late), m.attempts)
	return m.attempts, m.refused
}

// The server is restarted, and is away for up to twice the TTL, while messages come in.
func TestReadersOverRestarts(t *testing.T) {
	g := newGroup(t, busy())
	producer := g.produce()
	members := []*member{g.join(0), g.join(40), g.join(7)}
	g.waitMember(members...)
	var longest time.Duration
	for range *restarts {
		g.env.Server.Stop()
		<-time.After(rand.N(2 * g.TTL))
		require.NoError(t, g.env.Server.Start())
		longest = max(longest, g.waitProgress("every partition is read again after a restart"))
	}
	g.end(producer, members, "%d restarts, all partitions read again within %v", *restarts, longest.Round(time.Millisecond))
}

// A backlog is read steadily by eight readers, of which none joins or leaves meanwhile.
func TestReadersSteady(t *testing.T) {
	// All begin together: with Fetch, what is not acknowledged yet when a partition moves to somebody who joins is repeated.
	g := newGroup(t, setup{Partitions: 64, PerStream: 16, TTL: 5 * time.Second, Pace: 100 * time.Millisecond, Together: 8})
	g.fill(*messages)
	var members []*member
	for i := range 8 {
		members = append(members, g.join([]int{0, 500}[i%2]))
	}
	g.waitFor("reading begins", func() bool { return g.ledger.Tally().Messages > 0 })
	began := time.Now()
	took := g.waitRead()
	t.Logf("%d messages read in %v: %.0f/s", *messages, took.Round(time.Millisecond), float64(*messages)/time.Since(began).Seconds())
	g.end(nil, members, "steady")
	g.requireNoRepeats()
}

// fill stores n messages, as many in each partition.
func (g *group) fill(n int) {
	g.t.Helper()
	for i := range n {
		p := i % g.Partitions
		g.produced[p]++
		_, err := g.js.PublishAsync(readSubject+"."+strconv.Itoa(p), []byte(strconv.Itoa(g.produced[p])))
		require.NoError(g.t, err)
		if i%2000 == 1999 {
			<-g.js.PublishAsyncComplete()
		}
	}
	<-g.js.PublishAsyncComplete()
}

// requireNoRepeats requires that no message of a partition was handed out by two readers, unless a lease on it has run out, as it does on a machine
// that is busy for seconds.
func (g *group) requireNoRepeats() {
	g.t.Helper()
	for p, n := range g.ledger.Repeats() {
		if !g.lostOf[p] {
			require.Zero(g.t, n, "partition %d was handed over in good order", p)
		}
	}
}

// 8 → 9 → 8 readers under load. How long partitions are silent depends on the machine, so here it is logged only; TestElasticChange of package
// consumer judges it, in virtual time.
func TestReadersJoinAndLeave(t *testing.T) {
	g := newGroup(t, setup{Partitions: 32, PerStream: 16, TTL: 5 * time.Second, Pace: 25 * time.Millisecond})
	producer := g.produce()
	var members []*member
	for range 8 {
		members = append(members, g.join(0)) // with Fetch, what is not acknowledged yet is repeated
	}
	g.waitMember(members...)
	g.waitProgress("steady")
	g.ledger.ResetSilence()
	ninth := g.join(0)
	g.waitMember(ninth)
	joined := g.ledger.ResetSilence()
	ninth.stop()
	g.waitMember(members...)
	g.waitProgress("every partition is read after the ninth has left")
	left := g.ledger.ResetSilence()
	g.end(producer, members, "8 → 9 → 8 readers, longest silence of a partition %v and %v", joined.Round(time.Millisecond), left.Round(time.Millisecond))
	g.requireNoRepeats()
}
