// Package groupspec is what the workers of a group leave in its control bucket, so that a process which knows nothing of the group can
// lead it as they would: where the partitions come from, which strategy places them, and the settings that are the leader's.
//
// Nothing of the protocol depends on it. Followers write it when they start, and workers when they begin to lead, where it says something
// else; so it is what the last of them was started with.
package groupspec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/partigo/parti/types"
)

// Key is the key in the control bucket.
const Key = "group.spec"

// schema is what this release writes, and the highest it reads.
const schema = 1

// MaxInline is how large the list of a static source may be, as JSON; a larger one is only counted.
const MaxInline = 256 << 10

// The kinds of sources.
const (
	// Numbered: the partitions "0" to Count-1.
	Numbered = "numbered"
	// Static: the partitions listed; where the list was too large, those of the last commit.
	Static = "static"
	// KV: a list in a KV bucket.
	KV = "kv"
	// Custom: something that only the workers' own code knows; Type says what.
	Custom = "custom"
)

// Spec is the value of the key.
type Spec struct {
	Schema   int      `json:"schema"`
	Source   Source   `json:"source"`
	Strategy string   `json:"strategy"` // one of the names of this package; empty: one of the workers' own
	Type     string   `json:"strategy_type,omitempty"`
	Settings Settings `json:"settings"`
	// By is the worker that wrote it, At when, by its clock. Diagnostic only.
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Source says where the partitions come from.
type Source struct {
	Kind       string            `json:"kind"`
	Count      int               `json:"count,omitempty"`
	Partitions []types.Partition `json:"partitions,omitempty"`
	Bucket     string            `json:"bucket,omitempty"`
	Key        string            `json:"key,omitempty"`
	Type       string            `json:"type,omitempty"`
}

// Settings are those that count on the leader, and those that all must agree on.
type Settings struct {
	HeartbeatInterval time.Duration         `json:"heartbeat_interval"`
	LeaderLease       time.Duration         `json:"leader_lease"`
	ColdStartWindow   time.Duration         `json:"cold_start_window"`
	ScaleWindow       time.Duration         `json:"scale_window"`
	SettleDelay       time.Duration         `json:"settle_delay"`
	Cooldown          time.Duration         `json:"cooldown"`
	DampingPeriod     time.Duration         `json:"damping_period"`
	HandoffTimeout    time.Duration         `json:"handoff_timeout"`
	LabelSpillGrace   time.Duration         `json:"label_spill_grace"`
	UnlabeledPolicy   types.UnlabeledPolicy `json:"unlabeled_policy"`
	ExpectedWorkers   int                   `json:"expected_workers"`
	MaxWorkers        int                   `json:"max_workers"`
}

// Of returns the source of a list that never changes.
func Of(partitions []types.Partition) Source {
	numbered := true
	for i := range partitions {
		numbered = numbered && partitions[i].Equal(types.NewPartition(strconv.Itoa(i)))
	}
	if numbered {
		return Source{Kind: Numbered, Count: len(partitions)}
	}
	s := Source{Kind: Static, Count: len(partitions), Partitions: partitions}
	if data, err := json.Marshal(s); err != nil || len(data) > MaxInline {
		s.Partitions = nil
	}
	return s
}

// Numbers returns n partitions "0", "1", …
func Numbers(n int) []types.Partition {
	list := make([]types.Partition, n)
	for i := range list {
		list[i] = types.NewPartition(strconv.Itoa(i))
	}
	return list
}

// Same reports whether two specs lead a group in the same way.
func (s Spec) Same(o Spec) bool {
	s.By, s.At, o.By, o.At = "", time.Time{}, "", time.Time{}
	a, errA := s.Encode()
	b, errB := o.Encode()
	return errA == nil && errB == nil && string(a) == string(b)
}

// Encode returns the spec as JSON.
func (s Spec) Encode() ([]byte, error) {
	s.Schema = schema
	return json.Marshal(s)
}

// maxPartitions bounds what a number in a spec makes a reader allocate.
const maxPartitions = 10_000_000

// Decode decodes the value of the key. Errors wrap types.ErrMalformed or types.ErrUnsupportedSchema.
func Decode(data []byte) (Spec, error) {
	var s Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return Spec{}, fmt.Errorf("%w: %s: %w", types.ErrMalformed, Key, err)
	}
	switch {
	case s.Schema > schema:
		return Spec{}, fmt.Errorf("%w: %s has schema %d, this release reads up to %d", types.ErrUnsupportedSchema, Key, s.Schema, schema)
	case s.Schema < 1 || s.Source.Count < 0 || s.Source.Count > maxPartitions:
		return Spec{}, fmt.Errorf("%w: %s: schema %d, %d partitions", types.ErrMalformed, Key, s.Schema, s.Source.Count)
	}
	if s.Source.Kind == Static {
		if err := types.ValidatePartitions(s.Source.Partitions); err != nil {
			return Spec{}, fmt.Errorf("%w: %s: %w", types.ErrMalformed, Key, err)
		}
	}
	return s, nil
}
