// Program fencing-sql is the SQL counterpart of fencing-kv: a worker is frozen just before a transaction, its partition runs elsewhere
// meanwhile, and when it thaws, the database refuses the transaction. NATS and SQLite run in this process.
//
//	cd examples/fencing-sql && go run .
//
// It is a module of its own because of the SQLite driver. It ends by itself, with exit code 0 if the late transaction was refused.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/partigo/parti/fence"
)

const account = "account-17" // the one partition, and the row it writes

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fencing-sql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "fencing-sql-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := openBank(ctx, dir)
	if err != nil {
		return err
	}
	defer db.Close()
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()

	a, err := newWorker(ns, db, "a", 10)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := newWorker(ns, db, "b", 50)
	if err != nil {
		return err
	}
	defer b.close()
	if err := errors.Join(a.manager.Start(ctx), a.await(ctx, a.computing)); err != nil { // alone, so it owns the partition
		return err
	}
	if err := b.manager.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "a owns %s under epoch %d, and is frozen just before it pays in 10\n", account, a.epoch)
	a.conn.Close() // the group hears no more of a, as if the whole process stood still
	if err := b.await(ctx, b.written); err != nil {
		return err
	}
	fmt.Fprintf(out, "b owns it under epoch %d, and has paid in 50: %v\n", b.epoch, b.result)
	close(a.proceed)
	if err := a.await(ctx, a.written); err != nil {
		return err
	}
	fmt.Fprintf(out, "a thaws and pays in 10: %v\n", a.result)

	var balance int
	if err := db.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = $1", account).Scan(&balance); err != nil {
		return err
	}
	fmt.Fprintf(out, "the balance is %d\n", balance)
	if b.result != nil || !errors.Is(a.result, fence.ErrStale) || balance != 50 {
		return errors.New("the fence did not hold")
	}
	return nil
}
