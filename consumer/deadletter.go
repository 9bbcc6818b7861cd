package consumer

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// deadLetterFault says why dead letters cannot be published to the subject that was given; empty where they can.
func (c *config) deadLetterFault() string {
	if fault := subjectFault(c.deadLetter, false); fault != "" || c.layout == nil || c.layout.validate() != nil {
		return fault
	}
	if stream := c.layout.taker(c.deadLetter); stream != "" {
		return fmt.Sprintf("is one that the layout's own stream %s takes, so that the group would read its dead letters, or keep them among its messages", stream)
	}
	return ""
}

// taker returns the layout's stream that takes what is published to a subject; empty where none does.
func (l Layout) taker(subject string) string {
	for _, c := range l.Streams(jetstream.StreamConfig{}) {
		var taken filterSet
		for _, s := range c.Subjects {
			taken.add(s, 0)
		}
		if taken.overlap(subject) != nil {
			return c.Name
		}
	}
	return ""
}

// cameBack reports whether a message is a dead letter of this group that the group is handed itself, because a stream that it reads takes the dead-letter
// subject. One that somebody has published again to where it came from is a message like any other.
func (r *Reader) cameBack(m Message) bool {
	from := m.Headers.Get(HeaderSubject)
	return m.Headers.Get(HeaderGroup) == r.group && from != "" && (from != m.Subject || m.Subject == r.cfg.deadLetter)
}
