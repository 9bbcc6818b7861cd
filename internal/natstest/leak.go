package natstest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is how long goroutines may take to end after the tests. What a closed connection or server leaves takes milliseconds; goleak
// alone waits for 0.4 s, which a busy machine exceeds.
const leakPatience = 30 * time.Second

// VerifyTestMain runs the tests of a package and fails if goroutines are left at the end. Call it from TestMain.
func VerifyTestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := leaked(leakPatience); err != nil {
			fmt.Fprintf(os.Stderr, "natstest: goroutines are left %v after the tests: %v\n", leakPatience, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaked returns the goroutines that do not end within d.
func leaked(d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if err := goleak.Find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
