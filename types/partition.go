package types

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// DefaultWeight is the weight of a partition that states none. It is not 1, so that a partition lighter than the
	// ordinary one can be expressed.
	DefaultWeight = 100

	// MaxWeight bounds a single weight, so that the sum over any permitted number of partitions fits an int64.
	MaxWeight = 1 << 40

	// MaxPartitionIDLength bounds [Partition.ID], in bytes. NATS has no limit of its own for a subject's length but
	// the control line (4 KiB), and the ID appears in heartbeats, subjects and offset keys beside other tokens.
	MaxPartitionIDLength = 256

	// MaxLabelLength bounds a label, in bytes.
	MaxLabelLength = 64
)

// Partition is one unit of work that exactly one worker of a group owns at a time.
//
// Two partitions are the same when their Keys are equal in order; Weight and Label are attributes of it.
type Partition struct {
	// Keys name the partition, from the general to the particular, e.g. {"eu", "orders", "17"}.
	// Each key must be usable as one token of a NATS subject; [Partition.Validate] says what that means.
	Keys []string `json:"keys"`

	// Weight is the relative cost of the partition, for strategies that balance cost. 0 means [DefaultWeight].
	Weight int64 `json:"weight,omitempty"`

	// Label restricts the partition to workers that carry the same label; what happens while there is none, the group's spill
	// grace says. Empty: [UnlabeledPolicy] says who gets it.
	Label string `json:"label,omitempty"`
}

// NewPartition returns a partition of default weight with the given keys.
func NewPartition(keys ...string) Partition { return Partition{Keys: keys} }

// Cost is the weight to balance by: Weight, or [DefaultWeight] where none is stated.
func (p Partition) Cost() int64 {
	if p.Weight == 0 {
		return DefaultWeight
	}
	return p.Weight
}

// ID is the canonical name: the keys joined by dots, with every byte outside [-/_a-zA-Z0-9] written as =XX (upper-case
// hexadecimal). Different key lists never share an ID, whatever the keys hold, and the ID of a valid partition is a valid
// key of a NATS KV bucket. For keys made of the plain characters it equals [Partition.Subject].
func (p Partition) ID() string {
	if len(p.Keys) == 1 && plain(p.Keys[0]) {
		return p.Keys[0]
	}
	n := max(len(p.Keys)-1, 0)
	for _, k := range p.Keys {
		n += len(k)
	}
	var b strings.Builder
	b.Grow(n)
	for i, k := range p.Keys {
		if i > 0 {
			b.WriteByte('.')
		}
		writeEscaped(&b, k)
	}
	return b.String()
}

// Subject is the partition as part of a NATS subject: the keys joined by dots, unescaped. It is meaningful for a valid
// partition only.
func (p Partition) Subject() string { return strings.Join(p.Keys, ".") }

// String returns the ID.
func (p Partition) String() string { return p.ID() }

// Equal reports whether p and q agree in everything: keys, cost and label. To compare identity only, compare IDs.
func (p Partition) Equal(q Partition) bool {
	return p.Cost() == q.Cost() && p.Label == q.Label && slices.Equal(p.Keys, q.Keys)
}

// Clone returns a copy that shares no memory with p.
func (p Partition) Clone() Partition {
	p.Keys = slices.Clone(p.Keys)
	return p
}

// Validate reports everything that is wrong with p, joined; each error wraps [ErrInvalidPartition] and says what to
// write instead.
func (p Partition) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w %q: "+format, append([]any{ErrInvalidPartition, p.Keys}, args...)...))
	}
	if len(p.Keys) == 0 {
		bad("it has no keys: give at least one, e.g. Keys: []string{\"orders-17\"}")
	}
	for i, k := range p.Keys {
		if reason := keyFault(k); reason != "" {
			bad("key %d (%q) %s", i, k, reason)
		}
	}
	if len(errs) == 0 {
		if n := len(p.ID()); n > MaxPartitionIDLength {
			bad("its ID is %d bytes long, the limit is %d: use shorter keys, or a hash of the long one", n, MaxPartitionIDLength)
		}
	}
	switch {
	case p.Weight < 0:
		bad("weight %d is negative: use 0 for the default (%d) or a positive number", p.Weight, DefaultWeight)
	case p.Weight > MaxWeight:
		bad("weight %d is over %d: weights are relative, divide them all", p.Weight, int64(MaxWeight))
	}
	if err := ValidateLabel(p.Label); p.Label != "" && err != nil {
		bad("%w", err)
	}
	return errors.Join(errs...)
}

// ValidateLabel reports why label cannot be used: it must be 1 to [MaxLabelLength] bytes of [-_./a-zA-Z0-9].
// The error wraps [ErrInvalidLabel].
func ValidateLabel(label string) error {
	if label == "" || len(label) > MaxLabelLength {
		return fmt.Errorf("%w %q: it must have 1 to %d bytes", ErrInvalidLabel, label, MaxLabelLength)
	}
	for i := range len(label) {
		if c := label[i]; !plainByte(c) && c != '.' {
			return fmt.Errorf("%w %q: only letters, digits, '-', '_', '/' and '.' are allowed", ErrInvalidLabel, label)
		}
	}
	return nil
}

// ValidatePartitions checks every partition and that no two share an ID, and reports at most ten faults, joined. Each
// wraps [ErrInvalidPartition] or [ErrDuplicatePartition].
func ValidatePartitions(ps []Partition) error {
	const most = 10
	var errs []error
	seen := make(map[string]int, len(ps))
	for i := range ps {
		if err := ps[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", i, err))
		} else {
			id := ps[i].ID()
			if first, dup := seen[id]; dup {
				errs = append(errs, fmt.Errorf("%w %q: listed at positions %d and %d; list each partition once",
					ErrDuplicatePartition, id, first, i))
			}
			seen[id] = i
		}
		if len(errs) == most {
			errs = append(errs, errors.New("further faults are not listed"))
			break
		}
	}
	return errors.Join(errs...)
}

func keyFault(k string) string {
	switch {
	case k == "":
		return "is empty: NATS subjects have no empty tokens; leave the key out or name it"
	case !utf8.ValidString(k):
		return "is not valid UTF-8: encode binary keys, e.g. as hexadecimal"
	case strings.ContainsAny(k, ".*>"):
		return "contains '.', '*' or '>', which NATS reads as separators or wildcards: split it into several keys or replace them"
	case strings.ContainsFunc(k, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return "contains white space or a control character, which NATS subjects cannot carry: replace it, e.g. by '-'"
	}
	return ""
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '/'
}

func plain(k string) bool {
	for i := range len(k) {
		if !plainByte(k[i]) {
			return false
		}
	}
	return k != ""
}

func writeEscaped(b *strings.Builder, k string) {
	const hex = "0123456789ABCDEF"
	if k == "" {
		b.WriteString("=") // an empty key is invalid, but must not make {"", "a"} and {"a"} look alike
		return
	}
	for i := range len(k) {
		c := k[i]
		if plainByte(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
}
