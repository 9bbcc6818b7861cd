package natstest

import "testing"

func TestMain(m *testing.M) { VerifyTestMain(m) }
