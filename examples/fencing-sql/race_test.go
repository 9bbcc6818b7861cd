package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/partigo/parti/fence"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Owners with different epochs pay in at the same time, each until it is refused. Whatever was acknowledged counts, nothing else does,
// and in the order in which the database took them no epoch follows a higher one.
func TestAdvanceRace(t *testing.T) {
	db, ctx := bank(t), t.Context()
	_, err := db.ExecContext(ctx, "CREATE TABLE log (n INTEGER PRIMARY KEY, epoch INTEGER NOT NULL)")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	acknowledged := 0
	for epoch := int64(1); epoch <= 6; epoch++ {
		all.Go(func() {
			for range 8 {
				err := logged(ctx, db, epoch)
				if errors.Is(err, fence.ErrStale) {
					return
				}
				assert.NoError(t, err)
				mu.Lock()
				acknowledged++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var total, wrong int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM log").Scan(&total))
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM log a JOIN log b ON b.n < a.n AND b.epoch > a.epoch").Scan(&wrong))
	require.Zero(t, wrong)
	require.Equal(t, acknowledged, total)
	require.GreaterOrEqual(t, total, 8)
}

func logged(ctx context.Context, db *sql.DB, epoch int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := epochs.Advance(ctx, tx, account, epoch); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO log (epoch) VALUES ($1)", epoch); err != nil {
		return fmt.Errorf("epoch %d: %w", epoch, err)
	}
	return tx.Commit()
}
