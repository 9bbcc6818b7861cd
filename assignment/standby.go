package assignment

import (
	"cmp"
	"slices"
	"strings"

	"github.com/partigo/parti/assignment/plan"
)

// StandBy returns who of the workers stands by where limit workers at most are given partitions, sorted by ID: first come those that own
// partitions under the last commit, then the others, each in the order of their IDs. So nobody who has something gives way to somebody new.
// A limit of 0 is none. owned says how many partitions a worker owns.
func StandBy(limit int, workers []string, owned func(worker string) int) []string {
	if limit <= 0 || len(workers) <= limit {
		return nil
	}
	order := slices.Clone(workers)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(min(owned(b), 1), min(owned(a), 1)), strings.Compare(a, b))
	})
	spare := order[limit:]
	slices.Sort(spare)
	return spare
}

// limit makes the targets beyond MaxWorkers stand by: the commit lists them with nothing, so they are ready, and their leaving moves
// nothing. Workers that wait for the end of a grace count, as they keep what they have.
func (s *sitting) limit(most int, committed *plan.State) {
	if most <= 0 {
		return
	}
	owned := make(map[string]int)
	if committed != nil {
		for i := range committed.Slices {
			owned[committed.Slices[i].Worker] = len(committed.Slices[i].Entries)
		}
	}
	var targets []string
	kept := 0
	for i := range s.seats {
		switch w := &s.seats[i]; {
		case w.GraceUntil != 0: // held ones too
			if owned[w.Worker.Worker] > 0 { // who keeps nothing takes nobody's place
				kept++
			}
		case w.Target:
			targets = append(targets, w.Worker.Worker)
		}
	}
	free := most - kept
	if free <= 0 {
		s.standby = targets // already sorted, as the seats are
	} else {
		s.standby = StandBy(free, targets, func(w string) int { return owned[w] })
	}
	s.targets -= len(s.standby)
	s.seats = slices.DeleteFunc(s.seats, func(w seat) bool {
		return w.plain && s.standsBy(w.Worker.Worker) // what it is not listed with it can not read
	})
	for i := range s.seats {
		if w := &s.seats[i]; w.Target && s.standsBy(w.Worker.Worker) {
			w.Target, w.Listed, w.standby = false, true, true
		}
	}
}

// limit has the workers beyond MaxWorkers stand by.
func (l *loop) limit(s *sitting) {
	s.limit(l.cfg.MaxWorkers, l.committed)
	if !slices.Equal(s.standby, l.standby) {
		l.standby = s.standby
		l.cfg.Logger.Info("workers beyond the limit stand by", "limit", l.cfg.MaxWorkers, "workers", l.standby)
		l.cfg.Metrics.WorkersStandingBy(len(l.standby))
	}
}

// ready counts the workers that can be given partitions, or could if they did not stand by.
func (s *sitting) ready() int { return s.targets + len(s.standby) }

func (s *sitting) standsBy(worker string) bool {
	_, is := slices.BinarySearch(s.standby, worker)
	return is
}
