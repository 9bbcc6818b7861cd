package consumer

import (
	"testing"

	"github.com/partigo/parti/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
