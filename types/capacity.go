package types

// Capacity bounds what one worker takes. A bound that is 0 or less is none; the zero value is no bound at all.
type Capacity struct {
	// Partitions is the greatest number of partitions.
	Partitions int `json:"partitions,omitempty"`
	// Weight is the greatest sum of their costs, see [Partition.Cost]: a partition that states no weight costs [DefaultWeight].
	Weight int64 `json:"weight,omitempty"`
}

// Limited reports whether there is any bound.
func (c Capacity) Limited() bool { return c.Partitions > 0 || c.Weight > 0 }

// Admits reports whether a worker may have n partitions that cost so much together.
func (c Capacity) Admits(n int, cost int64) bool {
	return (c.Partitions <= 0 || n <= c.Partitions) && (c.Weight <= 0 || cost <= c.Weight)
}
