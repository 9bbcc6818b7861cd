package chaos

import (
	"os"
	"testing"

	"github.com/partigo/parti/internal/natstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envURL) != "" {
		os.Exit(workerMain())
	}
	natstest.VerifyTestMain(m)
}
