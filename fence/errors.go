package fence

import (
	"errors"
	"fmt"

	"github.com/partigo/parti/types"
)

// ErrStale: the sink has seen a higher epoch, so the write was refused; the partition runs elsewhere. Every such error is a
// [*StaleError].
var ErrStale = errors.New("fence: stale epoch")

// StaleError says which epoch was refused, and because of which.
type StaleError struct {
	// Subject is what is fenced: the key of a KV bucket, or the partition's ID.
	Subject string
	// Epoch is the one that was refused.
	Epoch int64
	// Highest is the one that the sink has seen.
	Highest int64
}

// Error says what was refused and why.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %s was to be written under epoch %d, and is at epoch %d", ErrStale, e.Subject, e.Epoch, e.Highest)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// checkEpoch refuses what no commit ever hands out: the epoch of a forgotten field.
func checkEpoch(epoch int64) error {
	if epoch <= 0 {
		return fmt.Errorf("%w: epoch %d is no fencing token: pass Ownership.Epoch", types.ErrInvalidConfig, epoch)
	}
	return nil
}
