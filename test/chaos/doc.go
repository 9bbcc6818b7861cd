// Package chaos holds what virtual time cannot show: real processes that are frozen and killed, and three servers whose routes are cut.
//
// The test binary runs itself again as worker processes. Each runs a Manager whose handlers write to a fenced bucket (fence.KV) on the
// parent's server, and reports on its standard output what it attempts and what comes of it. The suite takes a few rounds; more can be
// run:
//
//	go test ./test/chaos -run Freeze -freezes 100 -timeout 0
//	go test ./test/chaos -run CutRoutes -routes 60s
package chaos
