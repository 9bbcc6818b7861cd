package natstest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain runs the tests of a package and fails if goroutines are left at the end. Call it from TestMain.
func VerifyTestMain(m *testing.M) { goleak.VerifyTestMain(m) }
