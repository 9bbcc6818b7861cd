package grouptest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
)

// Worker is one worker: a Manager with a connection of its own.
type Worker struct {
	Manager *parti.Manager
	Client  *natstest.Client

	g       *Group
	id      atomic.Value // the last ID it ran under
	dead    atomic.Bool
	stopped atomic.Bool
	ended   sync.Once

	mu   sync.Mutex
	runs map[oracleRun]struct{} // begun and not ended, as the oracle knows them; nil once the worker is dead
}

// handle is every worker's handler: it tells the oracle, and returns a while after its context has ended.
func (w *Worker) handle(ctx context.Context, o parti.Ownership) error {
	run := oracleRun{o.Partition.ID(), o.Holder.Worker, o.Epoch}
	w.id.Store(run.worker)
	w.begin(run)
	<-ctx.Done()
	if d := w.g.opts.drain(run.partition); d > 0 {
		time.Sleep(d)
	}
	w.end(run)
	return nil
}

// oracleRun is a run as the oracle knows it.
type oracleRun struct {
	partition, worker string
	epoch             int64
}

// begin tells the oracle of a run, unless the process is dead: then nothing really runs.
func (w *Worker) begin(r oracleRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs != nil {
		w.runs[r] = struct{}{}
		w.g.Oracle.Start(r.partition, r.worker, r.epoch)
	}
}

func (w *Worker) end(r oracleRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.runs[r]; ok {
		delete(w.runs, r)
		w.g.Oracle.End(r.partition, r.worker, r.epoch)
	}
}

// ID returns the worker's ID, also after it has ended.
func (w *Worker) ID() string {
	if id := w.Manager.WorkerID(); id != "" {
		return id
	}
	id, _ := w.id.Load().(string)
	return id
}

// limit is how long a start or stop may take: a minute, over a cluster more, since that may need some elections first.
func (g *Group) limit() time.Duration {
	if g.heard != nil {
		return 4 * time.Minute
	}
	return time.Minute
}

// Start starts the worker.
func (w *Worker) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.g.limit())
	defer cancel()
	return w.Manager.Start(ctx)
}

// Stop stops the worker in good order.
func (w *Worker) Stop(opts ...parti.StopOption) {
	w.g.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.g.limit())
	defer cancel()
	w.stopped.Store(true)
	if err := w.Manager.Stop(ctx, opts...); err != nil && !w.g.excuses(err) {
		w.g.T.Errorf("worker %s: stop: %v", w.ID(), err)
	}
}

// Unsaid reports whether a worker could not say goodbye because the store did not answer while the lease lasted, which is all that
// Manager.Stop or Reader.Close complains of. On a busy machine, or while a stream has no leader, that is as it should be: the others wait for the expiry.
func Unsaid(err error) bool {
	return err != nil && !strings.Contains(err.Error(), "\n") && strings.Contains(err.Error(), "goodbye not stored before the lease ended")
}

// excuses reports whether an error of Stop is none of the product: in virtual time the store answers at once.
func (g *Group) excuses(err error) bool { return g.heard != nil && Unsaid(err) }

// StopWithin stops the worker and returns what Stop says.
func (w *Worker) StopWithin(ctx context.Context, opts ...parti.StopOption) error {
	w.stopped.Store(true)
	return w.Manager.Stop(ctx, opts...)
}

// Kill ends the worker as kill -9 does: its network is gone, nothing is said, and its handlers have ended.
func (w *Worker) Kill() {
	w.dead.Store(true)
	w.mu.Lock()
	for r := range w.runs {
		w.g.Oracle.End(r.partition, r.worker, r.epoch)
	}
	w.runs = nil
	w.mu.Unlock()
	w.Client.Kill()
}

// Cut cuts the worker off the network; Heal connects it again.
func (w *Worker) Cut()  { w.Client.Gate().Cut() }
func (w *Worker) Heal() { w.Client.Gate().Heal() }

func (w *Worker) over() bool { return w.dead.Load() || w.stopped.Load() }

// finish releases what is left of the worker when the scenario is over.
func (w *Worker) finish() {
	w.ended.Do(func() {
		limit := w.g.limit()
		if w.dead.Load() {
			limit = time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := w.Manager.Stop(ctx)
		if err != nil && !w.dead.Load() && !w.stopped.Load() && !w.g.excuses(err) {
			w.g.T.Errorf("worker %s: stop at the end: %v", w.ID(), err)
		}
	})
}
