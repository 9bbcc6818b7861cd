package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/partigo/parti"
	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	natstest.Fairly(t, func(ctx context.Context) error {
		out.Reset()
		err := run(ctx, &out)
		t.Log("\n" + out.String())
		return err
	})
	require.Contains(t, out.String(), "stale epoch")
}

func bank(t *testing.T) *sql.DB {
	t.Helper()
	db, err := openBank(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func at(epoch int64) parti.Ownership {
	return parti.Ownership{Partition: parti.Partition{Keys: []string{account}}, Epoch: epoch}
}

func balance(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT balance FROM accounts WHERE id = $1", account).Scan(&n))
	return n
}

func TestAdvanceRefusesLowerEpochs(t *testing.T) {
	db, ctx := bank(t), t.Context()
	require.NoError(t, epochs.Create(ctx, db), "a table that exists is left alone")
	require.NoError(t, payIn(ctx, db, at(5), 1))
	require.NoError(t, payIn(ctx, db, at(5), 1), "an equal epoch is the same run")
	err := payIn(ctx, db, at(4), 100)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fence.StaleError{Subject: account, Epoch: 4, Highest: 5}, *stale)
	require.NoError(t, payIn(ctx, db, at(6), 1))
	require.ErrorIs(t, payIn(ctx, db, at(5), 100), fence.ErrStale)
	require.ErrorIs(t, payIn(ctx, db, at(0), 100), types.ErrInvalidConfig)
	require.Equal(t, 3, balance(t, db))
}

// What is rolled back raises no epoch.
func TestAdvanceIsPartOfTheTransaction(t *testing.T) {
	db, ctx := bank(t), t.Context()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, epochs.Advance(ctx, tx, account, 9))
	require.NoError(t, tx.Rollback())
	require.NoError(t, payIn(ctx, db, at(1), 1))
}

func TestAdvanceInATableOfYourOwn(t *testing.T) {
	db, ctx := bank(t), t.Context()
	mine := fence.SQL{Table: "main.epochs"}
	require.NoError(t, mine.Create(ctx, db))
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, mine.Advance(ctx, tx, account, 2))
	require.ErrorIs(t, mine.Advance(ctx, tx, account, 1), fence.ErrStale)
}
