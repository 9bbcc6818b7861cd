package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/partigo/parti/types"
)

// The defaults of the hashing strategies.
const (
	// DefaultLoadFactor lets the busiest worker have a tenth more than the mean. A lower one balances better and moves
	// more: see the table at [ConsistentHash].
	DefaultLoadFactor = 1.1

	// DefaultVirtualNodes is the number of points per worker on the ring. With V points, the share of the ring that a worker
	// owns deviates by about 1/√V, here 10 %, so that the load factor has little left to correct. Building the ring takes
	// time in proportion.
	DefaultVirtualNodes = 100

	maxVirtualNodes = 1 << 14
)

// HashOption changes a setting of [ConsistentHash] or [WeightedConsistentHash].
type HashOption func(*hashConfig)

// WithLoadFactor bounds the load of the busiest worker to c times the mean, 1 < c ≤ 10. It is used with three decimals.
func WithLoadFactor(c float64) HashOption { return func(h *hashConfig) { h.loadFactor = c } }

// WithVirtualNodes sets the number of points per worker on the ring, 1 to 16,384.
func WithVirtualNodes(n int) HashOption { return func(h *hashConfig) { h.virtual = n } }

type hashConfig struct {
	loadFactor float64
	virtual    int
}

func newHashConfig(opts []HashOption) hashConfig {
	c := hashConfig{loadFactor: DefaultLoadFactor, virtual: DefaultVirtualNodes}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Validate reports every setting that cannot work; each error wraps [types.ErrInvalidConfig]. Assign reports the same, so a
// strategy can be written inline; a Manager asks before it starts.
func (c hashConfig) Validate() error {
	var errs []error
	if math.IsNaN(c.loadFactor) || c.loadFactor < 1.001 || c.loadFactor > 10 {
		errs = append(errs, fmt.Errorf("%w: load factor %v: it must be above 1 (at least 1.001) and at most 10; "+
			"leave WithLoadFactor out for %v", types.ErrInvalidConfig, c.loadFactor, DefaultLoadFactor))
	}
	if c.virtual < 1 || c.virtual > maxVirtualNodes {
		errs = append(errs, fmt.Errorf("%w: %d virtual nodes: there must be 1 to %d; leave WithVirtualNodes out for %d",
			types.ErrInvalidConfig, c.virtual, maxVirtualNodes, DefaultVirtualNodes))
	}
	return errors.Join(errs...)
}

// limit returns ⌈load factor × total / m⌉, the paper's ⌈c·n/m⌉, in integers, so that it is the same on every machine.
func (c hashConfig) limit(total int64, m int) int64 {
	f := int64(math.Round(c.loadFactor * 1000))
	d := 1000 * int64(m)
	return total/d*f + ceilDiv(total%d*f, d)
}

// ConsistentHashStrategy is made by [ConsistentHash].
type ConsistentHashStrategy struct{ hashConfig }

// ConsistentHash places every partition by its hash on a ring with bounded loads: it belongs to the first worker clockwise
// that has fewer than ⌈c·n/m⌉ partitions, where c is the load factor, n the number of partitions and m that of workers
// (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016, arXiv:1608.01350).
//
// No worker ever has more than ⌈c·n/m⌉. It ignores Previous and weights: anybody with the two lists knows every owner. The
// price is movement, since a worker that fills up passes the rest on: by the paper O(1/ε²) times the minimum, c = 1+ε. Measured
// with 100 partitions per worker, as one joins, in multiples of n/m (the range is over 10, 100 and 1,000 workers):
//
//	load factor  1.05       1.1 (default)  1.25       1.5
//	moves        1.3 – 1.8  1.2 – 1.4      1.0 – 1.1  1.0 – 1.1
func ConsistentHash(opts ...HashOption) ConsistentHashStrategy {
	return ConsistentHashStrategy{newHashConfig(opts)}
}

// Assign implements [types.AssignmentStrategy].
func (s ConsistentHashStrategy) Assign(ctx context.Context, in types.AssignmentInput) ([]int, error) {
	if err := errors.Join(s.Validate(), check(ctx, in)); err != nil {
		return nil, err
	}
	n, m := len(in.Partitions), len(in.Workers)
	if n == 0 {
		return []int{}, nil
	}
	cost, order := make([]int64, n), make([]int32, n)
	for i := range cost {
		cost[i], order[i] = 1, int32(i)
	}
	return newRing(in.Workers, s.virtual).assign(ctx, in.Partitions, order, cost, s.limit(int64(n), m))
}
