package rig

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/partigo/parti"
)

// Timing is a set of the durations that decide how fast a crash is noticed.
type Timing struct{ Interval, TTL, Lease time.Duration }

// The timings at which the programs measure, and the library's defaults.
var (
	Slow = Timing{2 * time.Second, 6 * time.Second, 5 * time.Second}
	Fast = Timing{time.Second, 3 * time.Second, 3 * time.Second}
	// Fastest has a lease of 1 s, the shortest that there is.
	Fastest = Timing{300 * time.Millisecond, time.Second, time.Second}
	Default = Timing{3 * time.Second, 15 * time.Second, 10 * time.Second}
)

// ParseTimings reads a list like "1s/3s/3s,0.3s/1s/1s": heartbeat interval, TTL, leader lease.
func ParseTimings(list string) ([]Timing, error) {
	var ts []Timing
	for item := range strings.SplitSeq(list, ",") {
		var ds []time.Duration
		for part := range strings.SplitSeq(item, "/") {
			d, err := time.ParseDuration(part)
			if err != nil {
				return nil, err
			}
			ds = append(ds, d)
		}
		if len(ds) != 3 {
			return nil, fmt.Errorf("%q: give interval/ttl/lease, e.g. 1s/3s/3s", item)
		}
		ts = append(ts, Timing{ds[0], ds[1], ds[2]})
	}
	return ts, nil
}

func (t Timing) String() string { return fmt.Sprintf("%v/%v/%v", t.Interval, t.TTL, t.Lease) }

// Options are the settings of a worker.
func (t Timing) Options() []parti.Option {
	return []parti.Option{parti.WithHeartbeat(t.Interval, t.TTL), parti.WithLeaderLease(t.Lease)}
}

// Prompt makes the leader act on joins as soon as there was none for the settle delay.
func Prompt(settle time.Duration) []parti.Option {
	return []parti.Option{parti.WithWindows(30*time.Second, 30*time.Second, settle), parti.WithCooldown(time.Millisecond)}
}

// ParseSizes reads a list of numbers like "10,100,1000".
func ParseSizes(list string) ([]int, error) {
	var ns []int
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: give sizes of at least 1, e.g. 10,100,1000", list)
		}
		ns = append(ns, n)
	}
	return ns, nil
}
