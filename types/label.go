package types

import (
	"math"
	"time"
)

// UnlabeledPolicy says which workers get partitions without a label.
type UnlabeledPolicy string

// The policies for partitions without a label.
const (
	// UnlabeledDedicated, the default: workers without labels, or all while no such worker is live.
	UnlabeledDedicated UnlabeledPolicy = "dedicated"
	// UnlabeledShared: all workers.
	UnlabeledShared UnlabeledPolicy = "shared"
)

// NeverSpill as the spill grace of labels leaves partitions parked for as long as no worker carries their label.
const NeverSpill time.Duration = math.MaxInt64

// LabelState is what the leader last decided about labels. Its maps have one key for each label that a partition asks for or a live
// worker carries.
type LabelState struct {
	// PoolSizes is the number of live workers that carry the label.
	PoolSizes map[string]int
	// Parked is the number of partitions with the label that nobody owns.
	Parked map[string]int
}
