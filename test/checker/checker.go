package checker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// TB is what the checker needs of a test.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
}

// Option changes what Attach makes.
type Option func(*Checker)

// WithOracle compares every acknowledgement with what the oracle sees running at that moment (rule [HeartbeatFalse]).
func WithOracle(o *Oracle) Option { return func(c *Checker) { c.oracle = o } }

// AllowSpill accepts that partitions go to workers without their label while no live worker carries it.
func AllowSpill() Option { return func(c *Checker) { c.spill = true } }

// OverCluster is for several servers in real time. A message may be heard long after one that was stored later on another server, or never where the leader
// of its stream was replaced: evidence is waited for that much longer, and looked for in the store before a rule is broken.
func OverCluster() Option { return func(c *Checker) { c.cluster, c.grace = true, clusterGrace } }

// Ignoring leaves rules out: for a test that breaks one on purpose.
func Ignoring(rules ...Rule) Option {
	return func(c *Checker) { c.ignored = append(c.ignored, rules...) }
}

// Checker watches one namespace. Its methods may be called from any goroutine.
type Checker struct {
	tb      TB
	nc      *nats.Conn
	prefix  string
	oracle  *Oracle
	ignored []Rule
	spill   bool
	cluster bool
	grace   time.Duration
	open    atomic.Int64 // rules that waited for evidence at the last Sync

	sub    *nats.Subscription
	status chan nats.Status
	queue  *queue
	syncs  chan chan struct{}
	ctx    context.Context // ends with Detach
	cancel context.CancelFunc
	stop   chan struct{} // closed by Detach: deal with what is there, then end
	done   chan struct{} // closed by loop
	once   sync.Once

	m *model // owned by loop

	mu         sync.Mutex // guards what follows; never held over a call that waits
	violations []Violation
	unjudged   []string
	sources    []sourceSet
	lossUntil  bool // a loss of commits is declared and has not been repaired yet
	operator   bool
	history    []Commit
	last       *view
	changed    chan struct{} // closed and replaced at every commit
}

// attachTimeout is for the subscription, which takes no time in a bubble.
const attachTimeout = 30 * time.Second

// maxReported bounds what is printed; Report has all.
const maxReported = 20

// Attach starts to watch the namespace and returns when the checker hears everything. Every violation fails tb at once. The
// connection must be the checker's own and stay healthy; it may be attached before the buckets exist, and should be: what
// happened before is believed. The checker detaches itself when the test ends.
func Attach(tb TB, nc *nats.Conn, namespace string, opts ...Option) *Checker {
	tb.Helper()
	c := &Checker{
		tb: tb, nc: nc, prefix: "_PARTI." + namespace + ".live.", queue: newQueue(),
		syncs: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		grace: grace,
	}
	for _, o := range opts {
		o(c)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.m = newModel(c, namespace)
	c.status = nc.StatusChanged(nats.CONNECTED)
	var err error
	c.sub, err = nc.Subscribe(c.prefix+">", c.hear)
	if err == nil {
		err = c.sub.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = nc.FlushTimeout(attachTimeout)
	}
	if err != nil {
		tb.Errorf("checker: subscribe: %v", err)
	}
	go c.loop()
	tb.Cleanup(c.Detach)
	c.Sync()
	return c
}

// hear runs in the subscription's goroutine.
func (c *Checker) hear(m *nats.Msg) {
	e, err := parseLive(c.prefix, m)
	if err != nil {
		c.tb.Errorf("checker: message on %s: %v", m.Subject, err)
		return
	}
	c.queue.push(e)
}

func (c *Checker) loop() {
	defer close(c.done)
	c.m.resync()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(c.m.untilDue())
		select {
		case <-c.queue.wake:
			c.m.dealWith(c.queue.take())
		case <-timer.C:
			c.m.judgeDue(false)
		case <-c.status:
			c.m.resync()
		case done := <-c.syncs:
			c.m.dealWith(c.queue.take())
			c.open.Store(c.m.unproved())
			close(done)
		case <-c.stop:
			c.m.dealWith(c.queue.take())
			c.m.judgeDue(!c.cluster) // what is older has been judged, see settle
			return
		}
	}
}

// Sync waits until everything that was stored before the call has been dealt with. It waits for a server that is away 2 s at
// most. Not for use by a callback of the checker's connection.
func (c *Checker) Sync() {
	c.flush()
	done := make(chan struct{})
	select {
	case c.syncs <- done:
		<-done
	case <-c.done:
	}
}

// flush waits until everything sent to the checker is in its queue.
func (c *Checker) flush() {
	if c.nc.FlushTimeout(requestTimeout) != nil {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if n, _, err := c.sub.Pending(); err != nil || n == 0 { // counts the message that is being handled, too
			return
		}
		<-tick.C
	}
}

// settle waits until every rule that waits for evidence now has it, or was judged.
func (c *Checker) settle() {
	for end := time.Now().Add(c.grace + time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c.Sync(); c.open.Load() == 0 {
			return
		}
	}
}

// Detach judges what is still open, ends everything that Attach started and waits for it.
func (c *Checker) Detach() {
	c.once.Do(func() {
		if c.cluster {
			c.settle()
		}
		c.flush()
		_ = c.sub.Unsubscribe() // fails on a closed connection, where it is not needed
		close(c.stop)
		<-c.done
		c.nc.RemoveStatusListener(c.status) // closes it, which loop would take for news
		c.cancel()
		c.mu.Lock()
		more := len(c.violations) - maxReported
		unjudged := c.unjudged
		c.mu.Unlock()
		if more > 0 {
			c.tb.Errorf("checker: %d more violations, see Report", more)
		}
		for _, u := range unjudged {
			c.tb.Logf("checker: could not judge: %s", u)
		}
	})
}

// Report returns all violations so far, in the order in which they were seen.
func (c *Checker) Report() []Violation {
	c.Sync()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// Unjudged returns what could not be checked, and why: what was collected before it could be read, or not heard during a
// restart of the server. A test without faults should find none.
func (c *Checker) Unjudged() []string {
	c.Sync()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.unjudged)
}

func (c *Checker) violate(v Violation) {
	if slices.Contains(c.ignored, v.Rule) {
		return
	}
	c.mu.Lock()
	c.violations = append(c.violations, v)
	n := len(c.violations)
	c.mu.Unlock()
	if n <= maxReported {
		c.tb.Errorf("checker: %v", v)
	}
}

func (c *Checker) skip(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unjudged = append(c.unjudged, what)
}

// sourceSet is a source that commits stored in [from, until) may cover.
type sourceSet struct {
	ids   map[string]struct{}
	until time.Time // zero: for ever
}

// ExpectSource declares what the source holds from now on. Commits stored within the time given may still cover what was
// declared before, later ones only this. Before the first call coverage is checked for duplicates only.
func (c *Checker) ExpectSource(ids []string, within time.Duration) {
	set := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	until := time.Now().Add(within)
	c.Sync() // commits that are under way are judged by what was expected so far
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.sources {
		if c.sources[i].until.IsZero() || c.sources[i].until.After(until) {
			c.sources[i].until = until
		}
	}
	c.sources = append(c.sources, sourceSet{ids: set})
}

func (c *Checker) allowedSources(at time.Time) []sourceSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	var allowed []sourceSet
	for _, s := range c.sources {
		if s.until.IsZero() || at.Before(s.until) {
			allowed = append(allowed, s)
		}
	}
	return allowed
}

// AllowStoreLoss declares that the store loses commits: the test deletes or overwrites the commit key, deletes the control bucket,
// or a payload. It holds until the commit that gives every entry a new epoch; where the loss could be seen, that must be
// the next one.
func (c *Checker) AllowStoreLoss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lossUntil = true
}

// AllowOperator declares that somebody outside the group writes or deletes keys without an expected revision.
func (c *Checker) AllowOperator() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operator = true
}

func (c *Checker) lossAllowed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lossUntil
}

func (c *Checker) operatorAllowed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.operator
}
