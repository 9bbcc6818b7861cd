package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/partigo/parti"
	"github.com/partigo/parti/types"
)

// giving are the flags of all orders.
type giving struct {
	requester string
	noWait    bool
}

func (g *giving) define(fs *flag.FlagSet) {
	fs.StringVar(&g.requester, "as", cmp.Or(os.Getenv("USER"), "parti command"), "`name` to note in the order; default $USER")
	fs.BoolVar(&g.noWait, "no-wait", false, "return when the leader has accepted the order")
}

func (g *giving) options() []parti.ControlOption {
	opts := []parti.ControlOption{parti.WithRequester(g.requester)}
	if g.noWait {
		opts = append(opts, parti.WithoutWaiting())
	}
	return opts
}

func report(c *client, a parti.ControlAnswer, err error) error {
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.out, "%s by %s", a.State, a.By)
	if a.Reason != "" {
		_, _ = fmt.Fprintf(c.out, ": %s", a.Reason)
	}
	_, _ = fmt.Fprintln(c.out)
	return nil
}

const twoNames = "name the group and the worker"

func defineDrain(fs *flag.FlagSet) action {
	g := &giving{}
	g.define(fs)
	oneByOne := fs.Bool("one-by-one", false, "take the next partition when the worker has returned the one before")
	return func(ctx context.Context, c *client, args []string) error {
		if err := want(args, 2, 2, twoNames); err != nil {
			return err
		}
		opts := g.options()
		if *oneByOne {
			opts = append(opts, parti.WithOneByOne())
		}
		a, err := parti.Drain(ctx, c.js, args[0], args[1], opts...)
		return report(c, a, err)
	}
}

func defineUndrain(fs *flag.FlagSet) action {
	g := &giving{}
	g.define(fs)
	return func(ctx context.Context, c *client, args []string) error {
		if err := want(args, 2, 2, twoNames); err != nil {
			return err
		}
		a, err := parti.Undrain(ctx, c.js, args[0], args[1], g.options()...)
		return report(c, a, err)
	}
}

func defineEvict(fs *flag.FlagSet) action {
	g := &giving{}
	g.define(fs)
	return func(ctx context.Context, c *client, args []string) error {
		if err := want(args, 2, 3, twoNames+", and perhaps a partition of it"); err != nil {
			return err
		}
		if len(args) == 2 {
			a, err := parti.EvictWorker(ctx, c.js, args[0], args[1], g.options()...)
			return report(c, a, err)
		}
		a, err := parti.EvictPartition(ctx, c.js, args[0], args[1], partition(args[2]), g.options()...)
		return report(c, a, err)
	}
}

// partition returns the partition of an ID: keys joined by dots, with odd bytes as =XX.
func partition(id string) types.Partition {
	keys := strings.Split(id, ".")
	for i, k := range keys {
		var b strings.Builder
		for j := 0; j < len(k); j++ {
			if k[j] == '=' && j+2 < len(k) {
				if n, err := strconv.ParseUint(k[j+1:j+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					j += 2
					continue
				}
			}
			b.WriteByte(k[j])
		}
		keys[i] = b.String()
	}
	return types.NewPartition(keys...)
}
