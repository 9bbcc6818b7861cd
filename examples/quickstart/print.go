package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// page prints, 80 columns wide.
type page struct {
	io.Writer
	scenes int
	waste  int // handlers that were started beyond the minimum
}

func (p *page) intro() {
	fmt.Fprintf(p, `parti quickstart · NATS in this process · %d partitions · one group

Heartbeat %v, TTL %v, leader lease %v, joins settle after %v; the defaults
(3s, 15s, 10s, 2s) are calmer and take longer. Every figure below was measured
in the handlers. One column is one partition:  # it stayed  + it moved here

`, partitionCount, interval, ttl, lease, settle)
}

// scene prints what happened and who owns what now.
func (p *page) scene(g *group, title, text string, r result) {
	p.scenes++
	fmt.Fprintf(p, "%d. %s\n   %s\n\n", p.scenes, title, strings.ReplaceAll(text, "\n", "\n   "))
	count := counts(r.after.running)
	for _, w := range g.made {
		if count[w.name] == 0 && counts(r.before.running)[w.name] == 0 {
			continue
		}
		fmt.Fprintf(p, "   %-10s %s %3d\n", w.name, g.row(w.name, r), count[w.name])
	}
	p.waste += r.starts - r.minimum
	if len(r.before.running) == 0 {
		fmt.Fprintf(p, "\n   took %s · started %d\n\n", seconds(r.took), r.starts)
		return
	}
	fmt.Fprintf(p, "\n   took %s · moved %d, minimum %d · longest pause of a partition %s\n\n",
		seconds(r.took), r.moved, r.minimum, seconds(r.after.pause))
}

// row shows the worker's partitions, in tens.
func (g *group) row(worker string, r result) string {
	var b strings.Builder
	for i, partition := range g.partitions {
		if i > 0 && i%10 == 0 {
			b.WriteByte(' ')
		}
		id := partition.ID()
		switch {
		case r.after.running[id] != worker:
			b.WriteString("·")
		case r.before.running[id] == worker:
			b.WriteByte('#')
		default:
			b.WriteByte('+')
		}
	}
	return b.String()
}

func (p *page) outro(runs int) {
	fmt.Fprintf(p, `Checked in the handlers, over %d runs: no partition ran twice at any moment,
each run had a higher epoch than the one before, and after each event every
partition ran on exactly one worker. Starts beyond the minimum: %d.
`, runs, p.waste)
}

// seconds writes a duration with three digits.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
