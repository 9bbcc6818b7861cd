package ledger

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// story is what happened in one partition, whose messages 1 to 6 are stored as sequences 10 to 60. Reader a has read three and stored two, then b took over
// and has read on.
type story struct {
	l       *Ledger
	records Records
}

func tell() *story {
	s := &story{l: New(1)}
	for n := 1; n <= 6; n++ {
		s.records.Messages = append(s.records.Messages, Message{0, uint64(n) * 10, n})
	}
	s.write("wa", 1, "A", 0)
	s.deliver("a", 1, 1, 2, 3)
	s.ack("a", 1, 2, Stored)
	s.write("wa", 1, "A", 20)
	s.write("wb", 2, "B", 20)
	s.deliver("b", 2, 3, 4, 5, 6)
	s.ack("a", 1, 3, Lost)
	s.ack("b", 2, 6, Stored)
	s.write("wb", 2, "B", 65) // nothing of the partition lies in between
	return s
}

func (s *story) deliver(reader string, epoch int64, counters ...int) {
	for _, n := range counters {
		s.l.Deliver(Place{reader, 0, epoch, uint64(n) * 10}, n)
	}
}

func (s *story) ack(reader string, epoch int64, counter int, r Result) {
	at := Place{reader, 0, epoch, uint64(counter) * 10}
	s.l.Acknowledge(at)
	s.l.Answer(at, r)
}

func (s *story) write(worker string, epoch int64, writer string, sequence uint64) {
	s.records.Offsets = append(s.records.Offsets, Offset{0, sequence, epoch, worker, writer})
}

func (s *story) rules() (out []Rule) {
	for _, f := range s.l.Judge(&s.records) {
		out = append(out, f.Rule)
	}
	return slices.Compact(out)
}

func TestTrueStory(t *testing.T) {
	s := tell()
	require.Empty(t, s.l.Judge(&s.records))
	require.Empty(t, s.l.Judge(nil))
	require.Equal(t, Tally{Messages: 7, Repeats: 1, Runs: 2, Acknowledged: 2, Refused: 1, Longest: s.l.Tally().Longest}, s.l.Tally())
	require.Equal(t, []int{1}, s.l.Repeats())
	require.True(t, s.l.Complete([]int{6}))
	require.False(t, s.l.Complete([]int{7}))
	require.Equal(t, []int{6}, s.l.Progress())
}

// What may happen beside: the same is handed out again until it is acknowledged, a run begins anew under its epoch, a take-over finds nothing to do.
func TestAllowed(t *testing.T) {
	s := tell()
	for n := 7; n <= 9; n++ {
		s.records.Messages = append(s.records.Messages, Message{0, uint64(n) * 10, n})
	}
	s.write("wc", 3, "C", 65)
	s.write("wd", 4, "D", 65)
	s.deliver("d", 4, 7, 8, 7, 8)
	s.ack("d", 4, 7, Failed)
	s.deliver("d", 4, 8)
	s.write("wd", 4, "D2", 65)
	s.deliver("d", 4, 7, 8, 9)
	s.ack("d", 4, 9, Stored)
	s.write("wd", 4, "D2", 90)
	require.Empty(t, s.l.Judge(&s.records))
	require.Equal(t, 5, s.l.Tally().Again)
	require.True(t, s.l.Complete([]int{9}))
}

// Each rule is tripped by a story that breaks it.
func TestForgeries(t *testing.T) {
	for rule, forge := range map[Rule]func(s *story){
		Produced:  func(s *story) { s.records.Messages[3].Counter = 5 },
		Foreign:   func(s *story) { s.l.Deliver(Place{"b", 0, 2, 61}, 6) },
		Unclaimed: func(s *story) { s.deliver("c", 3, 1) },
		Gap:       func(s *story) { s.write("wc", 3, "C", 65); s.more(9); s.deliver("c", 3, 8, 7) },
		Repeat:    func(s *story) { s.write("wc", 3, "C", 65); s.deliver("c", 3, 6) },
		Order:     func(s *story) { s.deliver("b", 2, 5) },
		TwoOwners: func(s *story) { s.more(7); s.deliver("c", 2, 7) },
		Fenced:    func(s *story) { s.write("wa", 1, "A", 65) },
		Back:      func(s *story) { s.write("wb", 2, "B", 60) },
		Ahead:     func(s *story) { s.more(8); s.deliver("b", 2, 7, 8); s.write("wb", 2, "B", 70) },
		Zombie:    func(s *story) { s.ack("a", 1, 3, Stored) },
		Missing:   func(s *story) { s.more(7) },
	} {
		t.Run(string(rule), func(t *testing.T) {
			s := tell()
			forge(s)
			require.Contains(t, s.rules(), rule)
			s.l.Exempt(0)
			require.Empty(t, s.rules())
		})
	}
}

// more stores messages up to a counter.
func (s *story) more(upTo int) {
	for n := len(s.records.Messages) + 1; n <= upTo; n++ {
		s.records.Messages = append(s.records.Messages, Message{0, uint64(n) * 10, n})
	}
}

// Variants of the rules that have more than one form.
func TestFurtherForgeries(t *testing.T) {
	for name, c := range map[string]struct {
		rule  Rule
		forge func(s *story)
	}{
		"gap within a run":              {Gap, func(s *story) { s.more(8); s.deliver("b", 2, 8) }},
		"gap at a later claim":          {Gap, func(s *story) { s.more(8); s.write("wc", 3, "C", 65); s.deliver("c", 3, 8) }},
		"one epoch, two workers":        {TwoOwners, func(s *story) { s.write("wc", 2, "C", 65) }},
		"a claim that moves the offset": {Ahead, func(s *story) { s.more(7); s.write("wc", 3, "C", 70) }},
		"back to what is acknowledged":  {Order, func(s *story) { s.more(9); s.deliver("b", 2, 7, 8, 9); s.ack("b", 2, 8, Stored); s.deliver("b", 2, 7) }},
		"again, not from the first on":  {Order, func(s *story) { s.more(9); s.deliver("b", 2, 7, 8, 9, 8) }},
		"a late acknowledgement lands": {Zombie, func(s *story) {
			s.more(7)
			s.deliver("b", 2, 7)
			s.write("wc", 3, "C", 65)
			s.ack("b", 2, 7, Stored)
		}},
		"and is stored": {Fenced, func(s *story) {
			s.more(7)
			s.deliver("b", 2, 7)
			s.write("wc", 3, "C", 65)
			s.ack("b", 2, 7, Stored)
			s.write("wb", 2, "B", 70)
		}},
		"no counter": {Foreign, func(s *story) { s.l.Deliver(Place{"b", 0, 2, 70}, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell()
			c.forge(s)
			require.Contains(t, s.rules(), c.rule)
		})
	}
}

// A run is judged for itself where nothing is known of what is stored.
func TestWithoutRecords(t *testing.T) {
	s := tell()
	s.deliver("b", 2, 8)
	require.Equal(t, Gap, s.l.Judge(nil)[0].Rule)
	require.False(t, s.l.Complete([]int{8}), "7 is missing")
	s.l.Exempt(0)
	require.True(t, s.l.Complete([]int{8}))
	s.l.Forget(0)
	require.Equal(t, []int{0}, s.l.Progress())
}
