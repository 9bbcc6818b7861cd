package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/internal/groupspec"
)

const coordinatorHelp = `
It leads each group, or stands ready to while somebody else does, until it gets SIGINT or SIGTERM; then another process takes over
within milliseconds, and no partition moves. Run two, for the case that one dies. It takes no partitions.

What it leads with is what the group's workers have left in the group's control bucket: followers (parti.RoleFollower) when they start, other
workers when they begin to lead. That names
  - the source: a static list (of any kind that consumer.Reader makes: the numbers 0 to N-1), or a source.KV by bucket and key. When
    workers with another list start, it follows within -poll. A static list of more than 256 KiB is taken from the last commit.
  - the strategy, if it is one of this module with its default settings: sticky, round-robin, consistent-hash, weighted-consistent-hash
  - the settings that are the leader's
Workers leave it in the background of their start, so a coordinator that starts with them waits 10 s for it.
The flags -partitions, -source-kv, -strategy and -max-workers replace what the workers say. Refused, with exit code 3, are groups whose
workers have left nothing, and those whose source or strategy is code of their own: only a process with that code can lead them, as a
parti.Manager with parti.RoleCoordinator. With -all they are logged and left alone, and looked at again at every -poll.

A named group that cannot be led when the command starts ends it. What goes wrong later is logged and tried again at every -poll, and the other
groups are led meanwhile. An outage of NATS is waited out, and so is a login that is refused. If the connection is closed for good all the
same, the command ends with exit code 1.

A coordinator makes streams anew that vanish under it, like any worker: end it before you delete those of a group.
`

// startPatience is for how long a coordinator tries to claim an ID.
const startPatience = time.Minute

// specPatience is for how long it waits for the spec of a group that exists: workers leave theirs in the background of their start.
const specPatience = 10 * time.Second

// stopPatience is for how long it tries to hand over.
const stopPatience = 10 * time.Second

// coordinator keeps one Manager for each group.
type coordinator struct {
	leading
	all  bool
	poll time.Duration
	c    *client

	mu      sync.Mutex // guards told, kept and what is written to c.out
	told    map[string]string
	kept    map[string]bool // groups that keep looks after
	running sync.WaitGroup
}

func defineCoordinator(fs *flag.FlagSet) action {
	k := &coordinator{told: map[string]string{}, kept: map[string]bool{}}
	fs.BoolVar(&k.all, "all", false, "lead all groups of the account, also those that appear later")
	fs.IntVar(&k.maxWorkers, "max-workers", -1, "give partitions to `N` workers of a group at most; 0: to all; negative: as the workers say")
	fs.IntVar(&k.partitions, "partitions", 0, "the partitions are the numbers 0 to `N`-1")
	fs.StringVar(&k.kv, "source-kv", "", "the partitions are listed by source.KV under `bucket/key`")
	fs.StringVar(&k.strategy, "strategy", "", "use the strategy of this `name`")
	fs.StringVar(&k.id, "id", "", "worker `ID` to claim; default: the lowest free one of coordinator-0, coordinator-1, …")
	fs.DurationVar(&k.poll, "poll", 5*time.Second, "how often to look for changes of what the workers say, and with -all for groups")
	verbose := fs.Bool("v", false, "log more than warnings")
	return func(ctx context.Context, c *client, args []string) error {
		level := slog.LevelWarn
		if *verbose {
			level = slog.LevelInfo
		}
		k.c, k.log = c, slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: level}))
		if err := k.check(args); err != nil {
			return err
		}
		return k.run(ctx, args)
	}
}

func (k *coordinator) check(names []string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
	}
	bucket, key, pair := strings.Cut(k.kv, "/")
	_, known := strategies[cmp.Or(k.strategy, "sticky")]
	switch {
	case k.all == (len(names) > 0):
		return bad("name the groups, or use -all")
	case (k.partitions != 0 || k.kv != "") && len(names) != 1:
		return bad("-partitions and -source-kv are about one group: name it")
	case k.partitions < 0, k.partitions > 0 && k.kv != "":
		return bad("use one of -partitions N, with a positive N, and -source-kv")
	case k.kv != "" && (!pair || bucket == "" || key == ""):
		return bad("-source-kv %q: write bucket/key", k.kv)
	case !known:
		return bad("-strategy %q: use sticky, round-robin, consistent-hash or weighted-consistent-hash", k.strategy)
	case k.poll < 100*time.Millisecond:
		return bad("-poll %v: use at least 100ms", k.poll)
	}
	return nil
}

// run leads the groups until ctx ends. A group that was named and cannot be led from the beginning ends it all, and so does the end of the
// connection, which is also all that ends a Manager by itself.
func (k *coordinator) run(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer k.running.Wait()
	defer cancel(nil)
	k.running.Go(func() {
		select {
		case <-k.c.closed:
			cancel(fmt.Errorf("nothing is led from here any more: the connection to NATS is closed for good (%w): start this command anew",
				cmp.Or(k.c.nc.LastError(), nats.ErrConnectionClosed)))
		case <-ctx.Done():
		}
	})
	for {
		if k.all {
			var err error
			if names, err = k.groups(ctx); err != nil {
				k.tell("", notLed, err)
			}
		}
		for _, ns := range names {
			if !k.take(ns) {
				continue
			}
			k.running.Go(func() {
				if err := k.keep(ctx, ns); err != nil {
					cancel(err)
				}
			})
		}
		if !k.wait(ctx) {
			break
		}
	}
	k.running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (k *coordinator) groups(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	return parti.Groups(ctx, k.c.js)
}

// wait lets -poll pass; false: ctx has ended.
func (k *coordinator) wait(ctx context.Context) bool {
	t := time.NewTimer(k.poll)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// take makes the caller look after the group; false: somebody does.
func (k *coordinator) take(ns string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.kept[ns]
	k.kept[ns] = true
	return !taken
}

// forget ends what take began.
func (k *coordinator) forget(ns string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, ns)
	delete(k.told, ns)
}

// What tell says that becomes of a group.
const (
	notLed      = "not led"
	ledAsBefore = "led as before: what the workers say now cannot be followed"
)

// tell logs what is wrong with a group, once.
func (k *coordinator) tell(ns, what string, err error) {
	text := err.Error()
	k.mu.Lock()
	known := k.told[ns] == text
	k.told[ns] = text
	k.mu.Unlock()
	if !known {
		k.log.Warn(what, "group", ns, "error", err)
	}
}

// cured makes tell log what it has logged before, should it come again.
func (k *coordinator) cured(ns string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.told, ns)
}

// keep leads one group until ctx ends, with a new Manager whenever the spec has changed. The error of a group that was named and has never been
// led is returned: whoever named it is there to read it. Any other is told, and the group looked at again later: time may cure it, and the other
// groups need their leader. With -all a group that is gone is left: run finds it when it is there again.
func (k *coordinator) keep(ctx context.Context, ns string) error {
	for patient := k.all; ; {
		led, err := k.lead(ctx, ns)
		patient = patient || led
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			continue
		case !patient:
			return err
		case k.all && errors.Is(err, parti.ErrNoGroup):
			k.forget(ns)
			return nil
		}
		k.tell(ns, notLed, err)
		if !k.wait(ctx) {
			return nil
		}
	}
}

// lead makes a Manager for the group and keeps it until ctx ends or the spec has changed. led: it has started.
func (k *coordinator) lead(ctx context.Context, ns string) (led bool, err error) {
	m, spec, err := k.managerSoon(ctx, ns)
	if err != nil {
		return false, err
	}
	start, cancel := context.WithTimeout(ctx, startPatience)
	err = m.Start(start)
	cancel()
	if err != nil {
		return false, fmt.Errorf("group %q: %w", ns, err)
	}
	k.mu.Lock()
	delete(k.told, ns)
	_, _ = fmt.Fprintf(k.c.out, "coordinating %s as %s\n", ns, m.WorkerID())
	k.mu.Unlock()
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		if e := m.Stop(stop); e != nil {
			k.log.Warn("not stopped in good order", "group", ns, "error", e)
		}
	}()
	for k.wait(ctx) {
		if k.changed(ctx, ns, spec) {
			k.log.Warn("the workers say something else than before; starting anew", "group", ns)
			return true, nil
		}
	}
	return true, nil
}

// managerSoon makes a Manager, as soon as the group's workers have told what it needs to know.
func (k *coordinator) managerSoon(ctx context.Context, ns string) (*parti.Manager, *groupspec.Spec, error) {
	retry := backoff.New(20*time.Millisecond, time.Second)
	for end := time.Now().Add(specPatience); ; {
		call, cancel := context.WithTimeout(ctx, defaultTimeout)
		m, spec, err := k.manager(call, k.c.js, ns)
		cancel()
		if !errors.Is(err, errUntold) || time.Now().After(end) || backoff.Sleep(ctx, retry.Next()) != nil {
			return m, spec, err
		}
	}
}

// changed reports whether the group can be led in another way than by the spec. What cannot be read now has not changed.
func (k *coordinator) changed(ctx context.Context, ns string, spec *groupspec.Spec) bool {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	buckets, err := open(ctx, k.c.js, ns)
	if err != nil {
		return false
	}
	now, err := readSpec(ctx, buckets.Control)
	switch {
	case err != nil, now == nil:
		return false
	case spec != nil && now.Same(*spec):
		k.cured(ns)
		return false
	}
	// A spec that cannot be followed changes nothing: the last one that could stays in force.
	if _, err := k.made(ctx, k.c.js, ns, buckets, now); err != nil {
		k.tell(ns, ledAsBefore, err)
		return false
	}
	return true
}
