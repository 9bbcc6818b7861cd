// Program fencing-kv shows what a fencing token is for, with no server at hand: NATS runs in this process. A worker is frozen just
// before a write. Its partition runs elsewhere meanwhile. When it thaws, its write is attempted, and the bucket refuses it.
//
//	go run ./examples/fencing-kv
//
// It ends by itself, with exit code 0 if the late write was refused.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/fence"
)

const key = "account-17" // the one partition, and the key it writes

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fencing-kv:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "fencing-kv-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()

	a, err := newWorker(ctx, ns, "a")
	if err != nil {
		return err
	}
	defer a.close()
	b, err := newWorker(ctx, ns, "b")
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
	fmt.Fprintf(out, "a owns %s under epoch %d, and is frozen just before it writes\n", key, a.epoch)
	a.conn.Close() // the group hears no more of a, as if the whole process stood still
	if err := b.await(ctx, b.computing); err != nil {
		return err
	}
	close(b.proceed)
	if err := b.await(ctx, b.written); err != nil {
		return err
	}
	fmt.Fprintf(out, "b owns it under epoch %d, and has written %q: %v\n", b.epoch, "by b", b.result)

	close(a.proceed)
	if err := a.await(ctx, a.written); err != nil {
		return err
	}
	fmt.Fprintf(out, "a thaws and writes %q: %v\n", "by a", a.result)
	e, err := b.sink.Get(ctx, key)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "stored is %q\n", e.Value)
	if b.result != nil || !errors.Is(a.result, fence.ErrStale) || string(e.Value) != "by b" {
		return errors.New("the fence did not hold")
	}
	return nil
}

// openSink makes the bucket and puts the fence before it.
func openSink(ctx context.Context, js jetstream.JetStream) (*fence.KV, error) {
	_, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "accounts", Storage: jetstream.MemoryStorage})
	if err != nil {
		return nil, err
	}
	return fence.OpenKV(ctx, js, "accounts")
}
