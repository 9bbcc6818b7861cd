package consumer

import (
	"maps"
	"slices"
	"sync"
)

// course is how far a shared feed has come. It says what its members have got, and what they may have lost: a member without messages of its
// own is as far as the feed is.
type course struct {
	generation uint32 // of the feed

	mu    sync.Mutex // may be taken under a run's
	upTo  uint64     // everything up to this stream sequence was delivered
	left  uint64     // how many messages were to come then
	blind bool       // nothing was asked for since, so messages may have come and gone
	edge  uint64     // first sequence that may have been removed just before it was delivered, since the last look; 0: none
}

// delivered notes a delivery, after it was taken in.
func (c *course) delivered(meta metadata) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.edge == 0 && meta.streamSeq > c.upTo+1 && (c.left > 0 || c.blind) {
		c.edge = c.upTo + 1
	}
	c.upTo, c.left, c.blind = meta.streamSeq, meta.pending, false
}

// caughtUp notes that everything up to a stream sequence was delivered.
func (c *course) caughtUp(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upTo, c.left, c.blind = max(c.upTo, seq), 0, false
}

// idle notes that nothing is asked for.
func (c *course) idle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind = true
}

// noted returns the edge.
func (c *course) noted() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.edge
}

// takeEdge returns the edge and forgets it.
func (c *course) takeEdge() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	edge := c.edge
	c.edge = 0
	return edge
}

// present returns the course of the shared feed that there is; nil where there is none.
func (s *shared) present() *course {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.course
}

// keepUp notes how far the shared feed has come, where it has passed nothing over.
func (x *run) keepUp(c *course) {
	if c == nil {
		return
	}
	c.mu.Lock()
	upTo, left, blind := c.upTo, c.left, c.blind
	c.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attach == c.generation && x.hole == 0 {
		x.clean, x.left, x.blind = max(x.clean, upTo), left, blind
	}
}

// conclude is the last that a member is told by a course: the next one knows nothing of what was delivered and lost before.
func (x *run) conclude(c *course) {
	if c == nil {
		return
	}
	x.keepUp(c)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heed(c.noted(), c.generation)
}

// endCourse ends the course of a feed that is closed.
func (s *shared) endCourse() {
	s.mu.Lock()
	c, members := s.course, slices.Collect(maps.Keys(s.members))
	s.feed, s.course = nil, nil
	s.mu.Unlock()
	for _, x := range members {
		x.conclude(c)
	}
}

// heed notes what the shared feed says may have been removed just before it was delivered. Held: mu.
func (x *run) heed(edge uint64, generation uint32) {
	if edge > 0 && x.edge == 0 && x.attach == generation && (x.hole == 0 || edge <= x.clean) {
		x.edge = max(edge, x.settled+1)
	}
}

// reach returns the last sequence taken in, and up to where everything was.
func (x *run) reach() (pos, clean uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pos, x.clean
}

// fallBack forgets what was known beyond the last message taken in: the stream is said to end before.
func (x *run) fallBack() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clean = x.pos
}
