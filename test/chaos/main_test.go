package chaos

import (
	"fmt"
	"os"
	"testing"

	"github.com/partigo/parti/internal/natstest"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case roleWorker:
		os.Exit(childMain(workerMain))
	case roleReader:
		os.Exit(childMain(readerMain))
	case roleProducer:
		os.Exit(childMain(producerMain))
	}
	natstest.VerifyTestMain(m)
}

// What a process is: empty in the parent.
const (
	envRole      = "PARTI_CHAOS_ROLE"
	roleWorker   = "worker"
	roleReader   = "reader"
	roleProducer = "producer"
)

// childMain runs a child until its standard input ends, and returns the process's exit code.
func childMain(run func() error) int {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(envRole)+":", err)
		return 1
	}
	return 0
}
