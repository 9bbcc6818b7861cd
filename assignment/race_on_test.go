//go:build race

package assignment

// histories is how many random histories are gone through; the race detector makes each ten times as slow.
const histories = 1_000
