//go:build race

package consumer

// lastSeed: the race detector makes a seed take ten seconds.
const lastSeed = "1"
