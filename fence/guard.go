package fence

import (
	"context"
	"sync"
)

// Guard remembers the highest epoch of each partition, in memory, for a sink that is a program of your own. The zero value is ready,
// has seen nothing, and is safe for concurrent use. It keeps some 100 bytes for each partition it has ever seen.
//
// A restarted program has forgotten everything. It stores the epochs with its data, and passes each stored one to [Guard.Check] before it
// takes the first write.
type Guard struct {
	mu         sync.Mutex // guards partitions and their highest; never held over a wait
	partitions map[string]*guarded
}

type guarded struct {
	turn    chan struct{} // holds a token while a write of Do runs
	highest int64
}

// Check takes note of the epoch, or returns a [*StaleError] where a higher one was seen. A write that follows it is not covered: a
// newer owner's check and write may come in between. Use [Guard.Do] for writes.
func (g *Guard) Check(partition string, epoch int64) error {
	if err := checkEpoch(epoch); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.at(partition)
	if epoch < p.highest {
		return &StaleError{Subject: partition, Epoch: epoch, Highest: p.highest}
	}
	p.highest = epoch
	return nil
}

// Do checks the epoch and runs write as one step: no other write of the partition runs meanwhile, and none under a lower epoch runs
// later. It returns write's error, or a [*StaleError] without having called it; or the error of ctx, when that ends while other writes
// of the partition run.
func (g *Guard) Do(ctx context.Context, partition string, epoch int64, write func() error) error {
	g.mu.Lock()
	p := g.at(partition)
	g.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	if err := g.Check(partition, epoch); err != nil {
		return err
	}
	return write()
}

// Highest returns the highest epoch seen of the partition; 0 where none was.
func (g *Guard) Highest(partition string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.partitions[partition]; p != nil {
		return p.highest
	}
	return 0
}

// at returns what is known of the partition. Held: mu.
func (g *Guard) at(partition string) *guarded {
	p := g.partitions[partition]
	if p == nil {
		if g.partitions == nil {
			g.partitions = map[string]*guarded{}
		}
		p = &guarded{turn: make(chan struct{}, 1)}
		g.partitions[partition] = p
	}
	return p
}
