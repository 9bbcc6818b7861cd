// Command parti is the operator's tool for groups: it looks at them, gives orders to their leaders, and can lead them.
//
//	parti help            what there is
//	parti help <command>  the flags of a command
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/partigo/parti"
)

// The exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3 // the leader refused an order, or a group cannot be led
	exitNoGroup = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is one of the tool's commands.
type command struct {
	name, args, summary, help string
	// lasting: it runs until it is told to end, so -timeout does not bound it.
	lasting bool
	// define adds the command's flags and returns what it does.
	define func(fs *flag.FlagSet) action
}

// action does what a command is for. It gets the arguments that are no flags.
type action func(ctx context.Context, c *client, args []string) error

// errUsage is wrapped by errors about the arguments.
var errUsage = errors.New("usage")

// errCannotLead is wrapped by reasons for which a group cannot be led from here.
var errCannotLead = errors.New("cannot be led from here")

// errUntold is one of them, which time may cure.
var errUntold = errors.New("none of its workers has told yet where its partitions come from")

func commands() []command {
	return []command{
		{name: "inspect", args: "<namespace>", summary: "show a group: leader, workers, what nobody owns, orders", define: defineInspect},
		{name: "workers", args: "<namespace>", summary: "show the workers of a group", define: defineWorkers},
		{name: "partitions", args: "<namespace>", summary: "show who owns which partition", define: definePartitions},
		{name: "groups", summary: "list the groups of the account", define: defineGroups},
		{name: "drain", args: "<namespace> <worker>", summary: "take everything from a worker, and give it nothing until undrained", define: defineDrain},
		{name: "undrain", args: "<namespace> <worker>", summary: "end the drain of a worker", define: defineUndrain},
		{
			name: "evict", args: "<namespace> <worker> [partition]", define: defineEvict,
			summary: "end a worker's incarnation, or take one partition from it",
		},
		{
			name: "coordinator", args: "[namespace…]", lasting: true, define: defineCoordinator, help: coordinatorHelp,
			summary: "lead groups, or stand ready to, without taking partitions",
		},
	}
}

// run is main without the process: it returns the exit code. The coordinator ends when ctx does.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		if len(args) > 1 {
			if c, ok := find(args[1]); ok {
				fs, _, _ := c.flags(stdout)
				fs.Usage()
				return exitDone
			}
		}
		usage(stdout)
		if len(args) == 0 {
			return exitUsage
		}
		return exitDone
	}
	c, ok := find(args[0])
	if !ok {
		_, _ = fmt.Fprintf(stderr, "parti: unknown command %q; see parti help\n", args[0])
		return exitUsage
	}
	return c.run(ctx, args[1:], stdout, stderr)
}

func find(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

func usage(w io.Writer) {
	_, _ = fmt.Fprint(w, "parti looks at groups of workers on NATS, gives orders to their leaders, and can lead them.\n\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  parti %-44s %s\n", c.name+" "+c.args, c.summary)
	}
	_, _ = fmt.Fprint(w, "\nparti help <command> shows a command's flags. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by the leader or not\n"+
		"possible to lead, 4 no such group.\n")
}

func (c command) flags(w io.Writer) (*flag.FlagSet, *connection, action) {
	fs := flag.NewFlagSet("parti "+c.name, flag.ContinueOnError)
	fs.SetOutput(w)
	fs.Usage = func() {
		_, _ = fmt.Fprintf(w, "parti %s [flags] %s\n\n%s.\n%s\n", c.name, c.args, c.summary, c.help)
		fs.PrintDefaults()
	}
	conn := &connection{}
	conn.define(fs, !c.lasting)
	return fs, conn, c.define(fs)
}

func (c command) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs, conn, do := c.flags(stderr)
	rest, err := parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil: // the flag package has said it
		return exitUsage
	}
	if !c.lasting {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, conn.timeout)
		defer cancel()
	}
	err = func() error {
		cl, err := conn.open(stdout, stderr)
		if err != nil {
			return err
		}
		defer cl.nc.Close()
		return do(ctx, cl, rest)
	}()
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "parti %s: %v\n", c.name, err)
	}
	return exitCode(err)
}

// parse takes flags before, between and after the arguments.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, parti.ErrRefused), errors.Is(err, errCannotLead):
		return exitRefused
	case errors.Is(err, parti.ErrNoGroup):
		return exitNoGroup
	}
	return exitFailed
}

// want returns an error that says how to call a command, unless there are from least to most arguments.
func want(args []string, least, most int, what string) error {
	if len(args) < least || len(args) > most {
		return fmt.Errorf("%w: %s", errUsage, what)
	}
	return nil
}

const defaultTimeout = 10 * time.Second
