// Package chaos holds what virtual time cannot show: real processes that are frozen and killed, and three servers whose routes are cut.
//
// The test binary runs itself again as worker processes. Each runs a Manager whose handlers write to a fenced bucket (fence.KV) on the
// parent's server, and reports on its standard output what it attempts and what comes of it. The suite takes a few rounds; more can be
// run:
//
//	go test ./test/chaos -run Freeze -freezes 100 -timeout 0
//	go test ./test/chaos -run CutRoutes -routes 60s
//
// Ordered reading has programs of its own: readers and a producer as processes, or readers of this process over three servers, and a ledger of all they
// were handed (package ledger) that is held against what the servers have stored:
//
//	go test ./test/chaos -run ReadersKilled -kills 100 -timeout 0
//	go test ./test/chaos -run ReadersFrozen -freezes 100 -timeout 0
//	go test ./test/chaos -run ReadersOverRestarts -restarts 50 -timeout 0
//	go test ./test/chaos -run ReadersSteady -messages 1000000
//	go test ./test/chaos -run ReadersOverCutRoutes -routes 5m -timeout 0
package chaos
