package source

import (
	"context"
	"fmt"

	"github.com/partigo/parti/types"
)

var _ types.PartitionSource = (*FuncSource)(nil)

// FuncSource asks a function; see [Func].
type FuncSource struct {
	list func(context.Context) ([]types.Partition, error)
}

// Func returns a source that asks list each time, e.g. a query of your database. The leader calls it from one goroutine at a
// time, at every periodic look, with a deadline in ctx. An error, a panic or a faulty list leaves the last good one in force. What
// list returns is copied.
func Func(list func(ctx context.Context) ([]types.Partition, error)) *FuncSource {
	return &FuncSource{list: list}
}

// Validate reports a missing function. What the function returns is checked when it does.
func (f *FuncSource) Validate() error {
	if f == nil || f.list == nil {
		return fmt.Errorf("%w: source.Func: the function is nil", types.ErrInvalidConfig)
	}
	return nil
}

// ListPartitions asks the function.
func (f *FuncSource) ListPartitions(ctx context.Context) ([]types.Partition, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	ps, err := f.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if err := validate(ps); err != nil {
		return nil, err
	}
	return clone(ps), nil
}
