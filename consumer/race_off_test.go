//go:build !race

package consumer

// lastSeed ends the range of seeds that the suite runs; it is smaller with the race detector.
const lastSeed = "8"
