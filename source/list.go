package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/partigo/parti/internal/blob"
	"github.com/partigo/parti/types"
)

const (
	listSchema = 1
	// maxListSize bounds the uncompressed list, in bytes: room for some millions of partitions.
	maxListSize = 256 << 20
	// keepNonces is how many earlier writes a list names, so that a writer who got no answer finds its own among them.
	keepNonces = 32
)

// list is what the key holds, as JSON in a blob (gzip, in chunks where it is large).
type list struct {
	Schema int `json:"schema"`
	// Revision grows with every write, also over a recreated bucket: it is at least the writer's wall clock in milliseconds.
	Revision uint64 `json:"revision"`
	// Nonces name the writes that led to the list, the last one first.
	Nonces []string `json:"nonces"`
	// Previous are the chunks of the list before this one, which somebody may still be reading.
	Previous   []string          `json:"previous,omitempty"`
	Partitions []types.Partition `json:"partitions"` // sorted by ID
}

// encodeList returns the blob of l, whose partitions are sorted and valid.
func encodeList(l *list) (root []byte, chunks map[string][]byte, err error) {
	raw, err := json.Marshal(l)
	if err != nil {
		return nil, nil, fmt.Errorf("source: encode: %w", err)
	}
	if len(raw) > maxListSize {
		return nil, nil, fmt.Errorf("%w: the list of %d partitions has %d bytes, the limit is %d",
			types.ErrPayloadTooLarge, len(l.Partitions), len(raw), maxListSize)
	}
	return blob.Pack(raw)
}

// decodeList is the inverse. Anything that encodeList would not have made is refused: types.ErrMalformed,
// types.ErrUnsupportedSchema. No more than limit bytes are decompressed. The error of get is kept apart from these (blob.ErrFetch).
func decodeList(ctx context.Context, root []byte, get blob.Getter, limit int64) (*list, error) {
	raw, err := blob.Unpack(ctx, root, "", get, limit)
	if errors.Is(err, blob.ErrFetch) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", types.ErrMalformed, err)
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("%w: list: %w", types.ErrMalformed, err)
	}
	if head.Schema > listSchema {
		return nil, fmt.Errorf("%w: list has schema %d, this release reads %d", types.ErrUnsupportedSchema, head.Schema, listSchema)
	}
	var l list
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, fmt.Errorf("%w: list: %w", types.ErrMalformed, err)
	}
	if l.Schema != listSchema || l.Revision == 0 || len(l.Nonces) == 0 {
		return nil, fmt.Errorf("%w: list: schema %d, revision %d, %d nonces", types.ErrMalformed, l.Schema, l.Revision, len(l.Nonces))
	}
	if err := types.ValidatePartitions(l.Partitions); err != nil {
		return nil, fmt.Errorf("%w: list: %w", types.ErrMalformed, err)
	}
	return &l, nil
}

// sorted returns a copy of ps in the canonical order.
func sorted(ps []types.Partition) []types.Partition {
	type item struct {
		id string
		p  types.Partition
	}
	items := make([]item, len(ps))
	for i, p := range clone(ps) {
		items[i] = item{p.ID(), p}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.id, b.id) })
	out := make([]types.Partition, len(ps))
	for i := range items {
		out[i] = items[i].p
	}
	return out
}
