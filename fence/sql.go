package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/partigo/parti/types"
)

// SQL fences transactions by a table that holds the highest epoch of each partition. The zero value uses the table parti_fence. It
// needs a driver of database/sql that takes $1 as a placeholder, and a database that has INSERT … ON CONFLICT … DO UPDATE … WHERE. The tests
// run with SQLite (examples/fencing-sql). Their race of six epochs was also run once, by hand, with PostgreSQL 15 and pgx, at each of its
// isolation levels. Call [SQL.Advance] first in each transaction that writes for a partition:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	defer tx.Rollback()
//	if err := guard.Advance(ctx, tx, o.Partition.ID(), o.Epoch); err != nil {
//		return err // errors.Is(err, fence.ErrStale): the partition runs elsewhere
//	}
//	… the writes …
//	return tx.Commit()
//
// From Advance until the transaction ends the row is locked (SQLite: the database). So a newer owner's Advance waits for this transaction,
// and an older owner's finds the newer epoch. Where the isolation level forbids that, the database fails one of the two (PostgreSQL: 40001),
// and nothing of it is written: try it again.
//
// Rows are never deleted: a partition whose row is gone is open to every late writer.
type SQL struct {
	// Table is the table's name, with a schema if need be: letters, digits, '_' and one '.'. Empty: parti_fence.
	Table string
}

const defaultTable = "parti_fence"

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

func (s SQL) table() (string, error) {
	switch {
	case s.Table == "":
		return defaultTable, nil
	case !tableName.MatchString(s.Table):
		return "", fmt.Errorf("%w: the table's name %q: use letters, digits, '_' and one '.', e.g. %q", types.ErrInvalidConfig, s.Table, defaultTable)
	}
	return s.Table, nil
}

// Statements returns the text of what [SQL.Create] and [SQL.Advance] send, for migrations and for clients other than database/sql. Advance
// takes the partition's ID and the epoch; it is refused if it changes no row.
func (s SQL) Statements() (create, advance string, err error) {
	t, err := s.table()
	if err != nil {
		return "", "", err
	}
	create = "CREATE TABLE IF NOT EXISTS " + t + " (partition_id TEXT PRIMARY KEY, epoch BIGINT NOT NULL)"
	advance = "INSERT INTO " + t + " AS f (partition_id, epoch) VALUES ($1, $2) " +
		"ON CONFLICT (partition_id) DO UPDATE SET epoch = excluded.epoch WHERE excluded.epoch >= f.epoch"
	return create, advance, nil
}

// Create creates the table if it does not exist.
func (s SQL) Create(ctx context.Context, db *sql.DB) error {
	create, _, err := s.Statements()
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, create); err != nil {
		return fmt.Errorf("fence: create the table: %w", err)
	}
	return nil
}

// Advance makes the transaction one under this epoch of the partition: it takes effect only if no higher epoch was seen before. Otherwise
// the error is a [*StaleError]; roll back then. It may be called for several partitions in one transaction, in the same order
// everywhere.
func (s SQL) Advance(ctx context.Context, tx *sql.Tx, partition string, epoch int64) error {
	if err := checkEpoch(epoch); err != nil {
		return err
	}
	_, advance, err := s.Statements()
	if err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, advance, partition, epoch)
	if err != nil {
		return fmt.Errorf("fence: advance %s to epoch %d: %w", partition, epoch, err)
	}
	rows, err := done.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: advance %s to epoch %d: the driver does not count changed rows: %w", partition, epoch, err)
	}
	if rows > 0 {
		return nil
	}
	highest, err := s.highest(ctx, tx, partition)
	stale := &StaleError{Subject: partition, Epoch: epoch, Highest: highest}
	if err != nil {
		return errors.Join(stale, err)
	}
	return stale
}

func (s SQL) highest(ctx context.Context, tx *sql.Tx, partition string) (epoch int64, err error) {
	t, err := s.table()
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, "SELECT epoch FROM "+t+" WHERE partition_id = $1", partition).Scan(&epoch)
	return epoch, err
}
