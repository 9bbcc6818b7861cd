package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/partigo/parti/types"
)

// MaxAlias bounds an alias, in bytes: it is one message, and must fit beside headers into what any server takes.
const MaxAlias = 512 << 10

// Alias is what a worker that does not speak the commit protocol reads under its key: everything that it is to run, as
// plain JSON. docs/PLAIN-WORKERS.md describes it for those who write such workers.
type Alias struct {
	Schema   int    `json:"schema"`
	WorkerID string `json:"worker_id"`
	// Version of the commit that the alias is part of: of two aliases the one with the higher version is the newer one.
	Version int64 `json:"version"`
	// Partitions are sorted by ID.
	Partitions []AliasPartition `json:"partitions"`
}

// AliasPartition is one partition of an alias.
type AliasPartition struct {
	ID string `json:"id"`
	// Epoch is the fencing token. A partition that comes back with another epoch was somebody else's in between.
	Epoch int64 `json:"epoch"`
	types.Partition
	// Subject is the partition as part of a NATS subject.
	Subject string `json:"subject"`
	// EarlierOwner: somebody may be ending the partition just now. A plain worker cannot see when that is over; it may wait a while.
	EarlierOwner bool `json:"earlier_owner,omitempty"`
}

// AliasKey is the key of a worker's alias.
func AliasKey(workerID string) string { return aliasPrefix + workerID }

const aliasPrefix = "assignment."

// EncodeAlias returns the alias of a worker that owns the entries. The error wraps types.ErrPayloadTooLarge if that is more than
// [MaxAlias]; the alias is returned even so.
func EncodeAlias(workerID string, version int64, entries []types.AssignmentEntry) ([]byte, error) {
	a := Alias{Schema: types.CommitSchema, WorkerID: workerID, Version: version, Partitions: make([]AliasPartition, len(entries))}
	for i := range entries {
		e := &entries[i]
		a.Partitions[i] = AliasPartition{ID: e.ID(), Epoch: e.Epoch, Partition: e.Partition, Subject: e.Subject(), EarlierOwner: len(e.From) > 0}
		a.Partitions[i].Weight = e.Cost()
	}
	slices.SortFunc(a.Partitions, func(x, y AliasPartition) int { return strings.Compare(x.ID, y.ID) })
	data, err := json.Marshal(a)
	if err != nil {
		return nil, malformed("alias", "%w", err)
	}
	if len(data) > MaxAlias {
		return data, fmt.Errorf("%w: the alias of %q has %d bytes for %d partitions, at most %d fit into a plain value",
			types.ErrPayloadTooLarge, workerID, len(data), len(entries), MaxAlias)
	}
	return data, nil
}

// DecodeAlias decodes an alias. Errors wrap types.ErrMalformed or types.ErrUnsupportedSchema.
func DecodeAlias(data []byte) (Alias, error) {
	var a Alias
	err := classify("alias", data, json.Unmarshal(data, &a))
	if err == nil {
		err = checkSchema("alias", a.Schema)
	}
	if err == nil && (types.ValidateWorkerID(a.WorkerID) != nil || !types.ValidVersion(a.Version)) {
		err = malformed("alias", "worker %q, version %d", a.WorkerID, a.Version)
	}
	if err != nil {
		return Alias{}, err
	}
	return a, nil
}
