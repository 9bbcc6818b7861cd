package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"github.com/partigo/parti"
	"github.com/partigo/parti/fence"
	_ "modernc.org/sqlite" // registers "sqlite"
)

// epochs is the fence: one more table in the same database.
var epochs fence.SQL

// openBank opens a new database with its tables. A transaction that finds the database locked waits for it.
func openBank(ctx context.Context, dir string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "bank.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL)")
	return db, errors.Join(err, epochs.Create(ctx, db))
}

// payIn changes the account under the ownership's epoch, all or nothing. Advance comes first: it takes the lock.
func payIn(ctx context.Context, db *sql.DB, o parti.Ownership, amount int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := epochs.Advance(ctx, tx, o.Partition.ID(), o.Epoch); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO accounts (id, balance) VALUES ($1, $2) "+
		"ON CONFLICT (id) DO UPDATE SET balance = balance + excluded.balance", o.Partition.ID(), amount)
	if err != nil {
		return err
	}
	return tx.Commit()
}
