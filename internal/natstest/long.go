package natstest

import "testing"

// Long leaves out a test that takes seconds of processor time where -short asks for that, as .ci/run does with the race detector, under which
// everything takes several times as long. What such a test does others do in less.
func Long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("takes long")
	}
}
