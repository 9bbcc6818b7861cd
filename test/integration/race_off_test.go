//go:build !race

package integration

// underRace: the race detector makes large fleets take minutes, so they are smaller with it. .ci/run runs the large ones without.
const underRace = false
