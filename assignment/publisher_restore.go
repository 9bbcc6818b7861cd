package assignment

import (
	"context"
	"fmt"

	"github.com/partigo/parti/assignment/record"
)

// missing returns the keys that the commit refers to and that are not among the listed ones.
func (b *commitBase) missing(listed func(key string) bool) map[string]struct{} {
	gone := make(map[string]struct{})
	for k := range b.keys {
		if !listed(k) {
			gone[k] = struct{}{}
		}
	}
	return gone
}

// restore stores values again that b refers to and that seem to have been deleted by somebody else: without them workers could
// not follow the commit until their slices change. Where a value is there after all it is only touched. A value that another
// release encoded in another way cannot be made again; it is reported.
func (p *AssignmentPublisher) restore(ctx context.Context, b *commitBase, keys map[string]struct{}) error {
	enc := encoder{last: &commitBase{}, seen: make(map[string]struct{})}
	again := func(raw []byte, err error) error {
		if err != nil {
			return err
		}
		if _, wanted := keys[record.PayloadKey(record.Hash(raw))]; wanted {
			_, err = enc.blob(raw)
		}
		return err
	}
	for i := range b.state.Slices {
		s := &b.state.Slices[i]
		if _, wanted := keys[record.PayloadKey(b.refs[s.Worker].PayloadHash)]; !wanted {
			continue
		}
		if err := again(record.EncodePayload(s.Entries)); err != nil {
			return err
		}
	}
	index, err := record.BuildIndex(b.refsInOrder())
	if err != nil {
		return err
	}
	for _, raw := range index.Blobs {
		if err := again(raw, nil); err != nil {
			return err
		}
	}
	if b.commit.Parked != "" {
		if err := again(record.EncodeParked(b.state.Parked)); err != nil {
			return err
		}
	}
	for i := range enc.blobs {
		if _, err := p.storeBlob(ctx, &enc.blobs[i]); err != nil {
			return err
		}
	}
	p.cfg.Logger.Error("values of the present commit were missing in the store", "missing", len(keys), "restored", len(enc.blobs))
	if len(enc.blobs) < len(keys) {
		return fmt.Errorf("%w: %d values are missing, %d could be restored", ErrCommitUnreadable, len(keys), len(enc.blobs))
	}
	return nil
}
