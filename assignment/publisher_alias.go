package assignment

import (
	"context"
	"errors"
	"strings"

	"github.com/partigo/parti/internal/kv"
)

// CleanupAllAssignments deletes every alias `assignment.<workerID>`, also of workers that still run, for when a whole group
// is taken down. Commits, their logs and payloads stay. An alias that changes meanwhile is left alone and reported.
func (p *AssignmentPublisher) CleanupAllAssignments(ctx context.Context) error {
	const filter = Prefix + ".*"
	aliases, err := p.cfg.Store.ListKeys(ctx, filter)
	if err != nil {
		return err
	}
	var errs []error
	for key, e := range aliases {
		if e.Absent() || strings.HasPrefix(key, Prefix+"._") { // keys of the protocol itself
			continue
		}
		if _, err := p.cfg.Store.Delete(ctx, key, e.Revision); err != nil && !errors.Is(err, kv.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
