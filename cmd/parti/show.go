package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/types"
)

// shower returns an action that shows a part of a view. What could be read is shown even if something could not.
func shower(fs *flag.FlagSet, pick func(v parti.View) any, human func(w io.Writer, v parti.View)) action {
	asJSON := fs.Bool("json", false, "write JSON")
	return func(ctx context.Context, c *client, args []string) error {
		if err := want(args, 1, 1, "name one group; parti groups lists them"); err != nil {
			return err
		}
		v, err := parti.Inspect(ctx, c.js, args[0])
		if v.Namespace == "" {
			return err
		}
		if *asJSON {
			if e := writeJSON(c.out, pick(v)); e != nil {
				return e
			}
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		human(w, v)
		if e := w.Flush(); e != nil {
			return e
		}
		return err
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func defineInspect(fs *flag.FlagSet) action {
	return shower(fs, func(v parti.View) any { return v }, func(w io.Writer, v parti.View) {
		summary(w, v)
		row(w, "")
		workers(w, v.Workers)
		if len(v.Parked) > 0 {
			row(w, "")
			parked(w, v.Parked)
		}
		if len(v.Orders) > 0 {
			row(w, "")
			orders(w, v.Orders)
		}
	})
}

func defineWorkers(fs *flag.FlagSet) action {
	return shower(fs, func(v parti.View) any { return v.Workers }, func(w io.Writer, v parti.View) { workers(w, v.Workers) })
}

func definePartitions(fs *flag.FlagSet) action {
	type both struct {
		Partitions []parti.PartitionView `json:"partitions"`
		Parked     []parti.ParkedView    `json:"parked,omitempty"`
	}
	return shower(fs, func(v parti.View) any { return both{v.Partitions, v.Parked} }, func(w io.Writer, v parti.View) {
		row(w, "PARTITION", "LABEL", "OWNER", "EPOCH")
		for _, p := range v.Partitions {
			row(w, p.ID, p.Label, p.Owner.Worker, strconv.FormatInt(p.Epoch, 10))
		}
		if len(v.Parked) > 0 {
			row(w, "")
			parked(w, v.Parked)
		}
	})
}

func defineGroups(fs *flag.FlagSet) action {
	asJSON := fs.Bool("json", false, "write JSON")
	return func(ctx context.Context, c *client, args []string) error {
		if err := want(args, 0, 0, "groups takes no arguments"); err != nil {
			return err
		}
		names, err := parti.Groups(ctx, c.js)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return writeJSON(c.out, slices.Concat([]string{}, names))
		}
		for _, n := range names {
			_, _ = fmt.Fprintln(c.out, n)
		}
		return nil
	}
}

func row(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

func summary(w io.Writer, v parti.View) {
	leader := "nobody"
	if v.Leader.Worker != "" {
		leader = fmt.Sprintf("%s (term %d)", v.Leader.Worker, v.Term)
	}
	commit := "none"
	if v.Version > 0 {
		commit = fmt.Sprintf("%d (%s, %s)", v.Version, v.Reason, v.At.Format(time.RFC3339))
	}
	limit := ""
	if v.MaxWorkers > 0 {
		limit = fmt.Sprintf(", at most %d of them with partitions", v.MaxWorkers)
	}
	mayLead := slices.ContainsFunc(v.Workers, func(x parti.WorkerView) bool {
		return x.State != "" && alive(x) && !x.Plain && x.Role.MayLead()
	})
	row(w, "group", v.Namespace)
	row(w, "leader", leader)
	switch {
	case !slices.ContainsFunc(v.Workers, alive):
		row(w, "", "NOBODY IS ALIVE: work goes on when a worker starts")
	case !mayLead:
		row(w, "", "NOBODY HERE MAY LEAD: start a coordinator, or a worker that is no follower")
	}
	row(w, "commit", commit)
	row(w, "workers", members(v.Workers, limit))
	row(w, "partitions", fmt.Sprintf("%d owned%s, %d parked", len(v.Partitions), ownedByGone(v.Workers), len(v.Parked)))
}

// alive reports whether the worker's key holds a heartbeat, readable or not, that is no farewell.
func alive(x parti.WorkerView) bool { return x.Fault != "" || x.State != "" && !x.State.Gone() }

// members counts those that can be given partitions, and apart from them those that cannot.
func members(list []parti.WorkerView, limit string) string {
	workers, coordinators, gone := 0, 0, 0
	for _, x := range list {
		switch {
		case !alive(x):
			gone++
		case x.Role == parti.RoleCoordinator:
			coordinators++
		default:
			workers++
		}
	}
	text := fmt.Sprintf("%d%s", workers, limit)
	switch coordinators {
	case 0:
	case 1:
		text += ", and 1 coordinator"
	default:
		text += fmt.Sprintf(", and %d coordinators", coordinators)
	}
	if gone > 0 {
		text += fmt.Sprintf("; %d gone", gone)
	}
	return text
}

// ownedByGone says how many partitions the commit gives to workers that are gone: nobody runs those.
func ownedByGone(list []parti.WorkerView) string {
	n := 0
	for _, x := range list {
		if !alive(x) {
			n += x.Partitions
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d by workers that are gone)", n)
}

func workers(w io.Writer, list []parti.WorkerView) {
	row(w, "WORKER", "ROLE", "STATE", "PARTITIONS", "APPLIED", "LABELS", "NOTES")
	for _, x := range list {
		state := string(x.State)
		if state == "" {
			state = "gone"
		}
		row(w, x.ID, string(x.Role), state, strconv.Itoa(x.Partitions), strconv.FormatInt(x.AppliedVersion, 10), strings.Join(x.Labels, ","), notes(x))
	}
}

func notes(x parti.WorkerView) string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(x.Leading, "leads")
	add(x.StandingBy, "stands by")
	add(x.Drained, "drained")
	add(x.Behind, "behind")
	add(x.Plain, "plain")
	add(!x.GraceUntil.IsZero(), "restarts, kept until %s", x.GraceUntil.Format(time.RFC3339))
	add(len(x.Unreturned) > 0, "not returned: %s", strings.Join(runs(x.Unreturned), " "))
	add(x.Fault != "", "unreadable: %s", x.Fault)
	return strings.Join(all, "; ")
}

func runs(list []types.Run) []string {
	out := make([]string, len(list))
	for i, r := range list {
		out[i] = fmt.Sprintf("%s@%d", r.Partition, r.Epoch)
	}
	return out
}

func parked(w io.Writer, list []parti.ParkedView) {
	row(w, "PARKED", "LABEL", "REASON")
	for _, p := range list {
		row(w, p.ID, p.Label, p.Reason)
	}
}

func orders(w io.Writer, list []parti.OrderView) {
	row(w, "ORDER", "WORKER", "PARTITION", "STATE", "KEY", "REASON")
	for _, o := range list {
		state := string(o.State)
		if state == "" {
			state = "open"
		}
		row(w, string(o.Kind), o.Worker, o.Partition, state, o.Key, o.Reason+o.Fault)
	}
}
