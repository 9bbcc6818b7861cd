package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/test/grouptest"
	"github.com/partigo/parti/types"
)

// maxGrace is the longest restart grace of a run: for so long partitions may wait when the faults have ended.
const maxGrace = 20 * time.Second

// kinds are what can happen, with weights.
var kinds = []struct {
	weight int
	do     func(*world, *grouptest.Worker)
}{
	{13, func(w *world, _ *grouptest.Worker) { w.startOne() }},
	{8, (*world).stop},
	{5, (*world).restart},
	{11, (*world).kill},
	{13, (*world).cut},
	{7, func(w *world, v *grouptest.Worker) { w.hold(v, "hold the replies to", natstest.FromServer, false) }},
	{6, func(w *world, v *grouptest.Worker) { w.hold(v, "lose what is sent by", natstest.ToServer, true) }},
	{5, (*world).delay},
	{14, func(w *world, _ *grouptest.Worker) { w.note("heal everybody"); w.healAll() }},
	{4, func(w *world, _ *grouptest.Worker) { w.note("restart the server"); w.Env.Restart() }},
	{6, func(w *world, _ *grouptest.Worker) { w.changeSource() }},
	{3, func(w *world, _ *grouptest.Worker) { w.note("the source fails"); w.Source.Fail(errors.New("down")) }},
	{4, func(w *world, _ *grouptest.Worker) { w.cutListings() }},
	{4, (*world).drain},
	{4, (*world).undrain},
	{4, (*world).evictWorker},
	{4, (*world).evictPartition},
	{4, (*world).failStrategy},
	{4, (*world).relabel},
}

// faulty is a strategy that fails when told to, in one of several ways.
type faulty struct {
	good  types.AssignmentStrategy
	fault atomic.Int32 // 0: none
}

const waysToFail = 3

func (f *faulty) Assign(ctx context.Context, in types.AssignmentInput) ([]int, error) {
	switch f.fault.Load() {
	case 1:
		return nil, errors.New("no idea")
	case 2:
		panic("no idea")
	case 3:
		return make([]int, len(in.Partitions)/2), nil
	}
	return f.good.Assign(ctx, in)
}

func (w *world) failStrategy(*grouptest.Worker) {
	way := 1 + w.rng.Int32N(waysToFail)
	w.note("the strategy fails in way %d", way)
	w.strategy.fault.Store(way)
}

// relabel stops a worker; the process that has its ID after it has other labels. With a grace, it is expected to have what the first one had.
func (w *world) relabel(v *grouptest.Worker) {
	id := v.ID()
	if id == "" || len(w.Live()) < 2 {
		return
	}
	labels := [][]string{{"x"}, {"y"}, {"x", "y"}, {"z"}}[w.rng.IntN(4)]
	var opts []parti.StopOption
	if w.rng.IntN(2) == 0 {
		grace := time.Second + time.Duration(w.rng.Int64N(int64(maxGrace-time.Second)))
		opts = append(opts, parti.WithRestartGrace(grace))
		w.graces[id] = time.Now().Add(grace)
	}
	w.note("%s stops (grace: %v) and is back with labels %v", id, len(opts) > 0, labels)
	w.unfault(v)
	v.Stop(opts...)
	w.Sleep(time.Duration(w.rng.Int64N(int64(time.Second))))
	w.made++
	err := w.Make(parti.WithWorkerID(id), parti.WithLabels(labels...)).Start()
	switch {
	case errors.Is(err, types.ErrWorkerIDTaken): // by a pooled worker that was cut off and is back; or the stopped one had lost it before
		w.note("%v", err)
	case err != nil:
		w.T.Errorf("start: %v", err)
	}
}

func (w *world) stop(v *grouptest.Worker) {
	if len(w.Live()) > 1 {
		w.note("stop %s", v.ID())
		w.unfault(v)
		v.Stop()
	}
}

// restart stops a worker with a grace. Who starts under its ID before that is over, finds everything in place.
func (w *world) restart(v *grouptest.Worker) {
	if len(w.Live()) < 2 {
		return
	}
	grace := time.Second + time.Duration(w.rng.Int64N(int64(maxGrace-time.Second)))
	id := v.ID()
	w.note("stop %s with a grace of %v", id, grace)
	w.unfault(v)
	v.Stop(parti.WithRestartGrace(grace))
	w.graces[id] = time.Now().Add(grace)
	if w.rng.IntN(3) > 0 { // pooled starters take an ID that waits
		w.Sleep(time.Duration(w.rng.Int64N(int64(2 * time.Second))))
		w.startOne()
	}
}

func (w *world) kill(v *grouptest.Worker) {
	if len(w.Live()) > 1 {
		w.note("kill %s", v.ID())
		v.Kill()
	}
}

func (w *world) cut(v *grouptest.Worker) {
	w.note("cut %s", v.ID())
	v.Cut()
}

func (w *world) hold(v *grouptest.Worker, what string, d natstest.Direction, lose bool) {
	w.note("%s %s", what, v.ID())
	if lose {
		v.Client.Gate().Lose(d)
	} else {
		v.Client.Gate().Hold(d)
	}
}

func (w *world) delay(v *grouptest.Worker) {
	d := time.Duration(w.rng.Int64N(int64(150 * time.Millisecond)))
	w.note("delay %s by %v", v.ID(), d)
	v.Client.Gate().Delay(d)
}

// startOne starts a worker that need not succeed at once: the network may be down for it too. Some have labels, or a bound.
func (w *world) startOne() {
	var opts []parti.Option
	what := "start a worker"
	if labels := [][]string{nil, nil, {"x"}, {"y"}, {"x", "y"}}[w.rng.IntN(5)]; labels != nil {
		opts = append(opts, parti.WithLabels(labels...))
		what += fmt.Sprintf(" with labels %v", labels)
	}
	if n := w.rng.IntN(20); n >= 1 && n <= 6 {
		opts = append(opts, parti.WithCapacity(n, 0))
		what += fmt.Sprintf(" that takes %d", n)
	}
	w.note("%s", what)
	w.begin(opts...)
}

func (w *world) begin(opts ...parti.Option) {
	w.made++
	if err := w.Make(opts...).Start(); err != nil {
		w.T.Errorf("start: %v", err)
	}
}

// labelled returns n partitions, with labels on some.
func labelled(n int) []types.Partition {
	ps := grouptest.Numbered(n)
	for i := range ps {
		ps[i].Label = []string{"", "", "", "x", "y"}[i%5]
	}
	return ps
}

func (w *world) changeSource() {
	w.Source.Fail(nil)
	ps := labelled(5 + w.rng.IntN(30))
	w.note("the source has %d partitions", len(ps))
	w.SetPartitions(time.Hour, ps...) // nobody may be there to commit it for a while
}

// cutListings deletes the consumers of listings under way, as a restart of the server would: they must fail, and not be taken for complete.
func (w *world) cutListings() {
	w.note("listings lose their consumers")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, bucket := range []string{"control", "heartbeat"} {
		s, err := w.operator.Stream(ctx, "KV_"+grouptest.Namespace+"-"+bucket)
		if err != nil {
			return // not made yet
		}
		for name := range s.ConsumerNames(ctx).Name() {
			_ = s.DeleteConsumer(ctx, name) // it may have ended by itself
		}
	}
}

// order gives an order, which may be refused, or not be answered in time.
func (w *world) order(what string, give func(context.Context, jetstream.JetStream) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	w.orders++
	err := give(ctx, w.operator)
	w.note("%s: %v", what, err)
	return err == nil || errors.Is(err, types.ErrRefused)
}

func (w *world) drain(v *grouptest.Worker) {
	id := v.ID()
	if id == "" {
		return
	}
	w.drained[id] = true
	var opts []parti.ControlOption
	if w.rng.IntN(2) == 0 {
		opts = append(opts, parti.WithOneByOne())
	}
	w.order("drain "+id, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := parti.Drain(ctx, js, grouptest.Namespace, id, opts...)
		return err
	})
}

// undrain ends the drain of somebody who is drained.
func (w *world) undrain(*grouptest.Worker) {
	if ids := slices.Sorted(maps.Keys(w.drained)); len(ids) > 0 {
		w.undrainID(ids[w.rng.IntN(len(ids))])
	}
}

func (w *world) undrainID(id string) {
	if w.order("undrain "+id, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := parti.Undrain(ctx, js, grouptest.Namespace, id)
		return err
	}) {
		delete(w.drained, id)
	}
}

func (w *world) evictWorker(v *grouptest.Worker) {
	if id := v.ID(); id != "" {
		w.order("evict "+id, func(ctx context.Context, js jetstream.JetStream) error {
			_, err := parti.EvictWorker(ctx, js, grouptest.Namespace, id)
			return err
		})
	}
}

func (w *world) evictPartition(v *grouptest.Worker) {
	id := v.ID()
	ps := v.Manager.Partitions()
	if id == "" || len(ps) == 0 {
		return
	}
	p := types.NewPartition(ps[w.rng.IntN(len(ps))].ID)
	w.order(fmt.Sprintf("evict %s from %s", p.ID(), id), func(ctx context.Context, js jetstream.JetStream) error {
		_, err := parti.EvictPartition(ctx, js, grouptest.Namespace, id, p)
		return err
	})
}
