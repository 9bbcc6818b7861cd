//go:build race

package sim

// lastSeed of the suite.
const lastSeed = "6"
