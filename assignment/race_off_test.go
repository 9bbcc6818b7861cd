//go:build !race

package assignment

// histories is how many random histories are gone through.
const histories = 10_000
