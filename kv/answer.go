package kv

import (
	"encoding/json"

	"github.com/nats-io/nats.go"
)

// PutMsg returns the message by which Put would store value, for those who have many writes under way at once and wait for none: they
// publish it with a Reply of their own, and give the answer to PutAnswer.
func (s *Store) PutMsg(key string, value []byte, expect uint64) (*nats.Msg, error) {
	return s.batchMsg(Write{Key: key, Value: value, Expect: expect})
}

// PutAnswer returns the new revision from the server's answer, or false where that says anything else: Put tells the reasons apart, and says what may
// have been stored.
func PutAnswer(m *nats.Msg) (revision uint64, ok bool) {
	var ack struct {
		Error    *struct{} `json:"error"`
		Sequence uint64    `json:"seq"`
	}
	if len(m.Data) == 0 || json.Unmarshal(m.Data, &ack) != nil { // no data: nobody stores what is published there
		return 0, false
	}
	return ack.Sequence, ack.Error == nil && ack.Sequence > 0
}
