package parti

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The forms in JSON of what has durations and errors, which encoding/json writes as numbers of nanoseconds and as {}. The fields of the outer
// structs take the place of those embedded ones that have the same name.

type plainStatus Status

type statusJSON struct {
	plainStatus
	Ready     bool   `json:"ready"`
	LeaseLeft string `json:"lease_left"`
	LastError string `json:"last_error,omitempty"`
}

// MarshalJSON returns what a health endpoint answers with.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusJSON{
		plainStatus: plainStatus(s), Ready: s.Ready(), LeaseLeft: s.LeaseLeft.Round(time.Millisecond).String(), LastError: text(s.LastError),
	})
}

// UnmarshalJSON reads what MarshalJSON has written, e.g. on another host. LeaseLeft is rounded to milliseconds, and of LastError there is
// only its text: it compares to no other error.
func (s *Status) UnmarshalJSON(data []byte) error {
	var j statusJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if j.LeaseLeft != "" {
		left, err := time.ParseDuration(j.LeaseLeft)
		if err != nil {
			return fmt.Errorf("%w: lease_left: %w", ErrMalformed, err)
		}
		j.plainStatus.LeaseLeft = left
	}
	if j.LastError != "" {
		j.plainStatus.LastError = errors.New(j.LastError)
	}
	*s = Status(j.plainStatus)
	return nil
}

// MarshalJSON writes the reason as its text.
func (l Leadership) MarshalJSON() ([]byte, error) {
	type plain Leadership
	return json.Marshal(struct {
		plain
		Reason string `json:"reason,omitempty"`
	}{plain(l), text(l.Reason)})
}

// MarshalJSON writes the duration and the error as their texts.
func (r Rebalance) MarshalJSON() ([]byte, error) {
	type plain Rebalance
	return json.Marshal(struct {
		plain
		Took string `json:"took"`
		Err  string `json:"error,omitempty"`
	}{plain(r), r.Took.String(), text(r.Err)})
}

// text is the error's text, "" for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
