package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/partigo/parti/types"
)

// group is the server and everybody who takes part.
type group struct {
	dir        string
	server     *server.Server
	partitions []types.Partition
	ledger     *ledger
	made       []*worker
	live       []*worker // joined, and neither killed nor stopped
}

func newGroup() (*group, error) {
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return nil, err
	}
	g := &group{dir: dir, ledger: newLedger()}
	for i := range partitionCount {
		g.partitions = append(g.partitions, types.NewPartition(fmt.Sprintf("p%02d", i)))
	}
	g.server, err = server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go g.server.Start()
	if !g.server.ReadyForConnections(10 * time.Second) {
		return nil, errors.Join(errors.New("the NATS server does not start"), g.close())
	}
	return g, nil
}

// close ends what is left, the server last.
func (g *group) close() error {
	for _, w := range g.made {
		w.bury()
	}
	g.server.Shutdown()
	g.server.WaitForShutdown()
	return os.RemoveAll(g.dir)
}

// join starts n workers at the same moment and returns when they take part.
func (g *group) join(ctx context.Context, n int) error {
	first := len(g.made)
	for range n {
		w, err := newWorker(g, fmt.Sprintf("worker-%d", len(g.made)+1))
		if err != nil {
			return err
		}
		g.made = append(g.made, w)
	}
	joining := g.made[first:]
	g.live = append(g.live, joining...)
	return together(joining, func(w *worker) error { return w.manager.Start(ctx) })
}

// kill takes a worker's network away at once and for good. Unlike the process after a kill -9, this one lives on, believes that it
// still owns its partitions, and has to find out by itself: the harder case.
func (g *group) kill(w *worker) {
	g.live = slices.DeleteFunc(g.live, func(v *worker) bool { return v == w })
	w.link.cut()
}

// leave stops workers in good order.
func (g *group) leave(ctx context.Context, leaving ...*worker) error {
	g.live = slices.DeleteFunc(slices.Clone(g.live), func(v *worker) bool { return slices.Contains(leaving, v) })
	return together(leaving, func(w *worker) error { return w.stop(ctx) })
}

func together(workers []*worker, do func(*worker) error) error {
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() { errs[i] = do(w) })
	}
	all.Wait()
	return errors.Join(errs...)
}
