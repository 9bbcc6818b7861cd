package consumer

import (
	"cmp"
	"strings"
)

// filterSet is a set of the filters of one stream, by their tokens.
type filterSet struct {
	next   map[string]*filterSet
	filter string // the one that ends here; empty: none
	part   int    // whose it is
}

// add adds a partition's filter.
func (s *filterSet) add(filter string, part int) {
	for token := range strings.SplitSeq(filter, ".") {
		if s.next == nil {
			s.next = map[string]*filterSet{}
		}
		if s.next[token] == nil {
			s.next[token] = &filterSet{}
		}
		s = s.next[token]
	}
	s.filter, s.part = filter, part
}

// overlap returns one of the set that selects a subject which the filter selects as well; nil: there is none.
func (s *filterSet) overlap(filter string) *filterSet {
	token, rest, more := strings.Cut(filter, ".")
	found := s.next[">"]
	switch token {
	case ">":
		for _, sub := range s.next {
			return sub.any()
		}
	case "*":
		for _, sub := range s.next {
			found = cmp.Or(found, sub.behind(rest, more))
		}
	default:
		found = cmp.Or(found, s.next[token].behind(rest, more), s.next["*"].behind(rest, more))
	}
	return found
}

// behind is overlap for what follows the first tokens of a filter, if anything does. s may be nil.
func (s *filterSet) behind(rest string, more bool) *filterSet {
	switch {
	case s == nil || !more && s.filter == "":
		return nil
	case more:
		return s.overlap(rest)
	}
	return s
}

// any returns one of the set, which must not be empty.
func (s *filterSet) any() *filterSet {
	for s.filter == "" {
		for _, s = range s.next {
			break
		}
	}
	return s
}
