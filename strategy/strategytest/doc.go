// Package strategytest checks that an assignment strategy keeps the contract of [types.AssignmentStrategy], so that the
// leader can rely on it. In a test of your own:
//
//	func TestMyStrategy(t *testing.T) {
//		strategytest.Run(t, mine.New(), strategytest.MaxSpread(1), strategytest.Stable())
//	}
//
// Always checked: the result is total and names existing workers only; it is the same for the same input, whatever order the
// leader learned of it in and wherever it lies in memory; the input is not changed; nothing panics or hangs; no partitions,
// one worker, more workers than partitions, the largest weights, owners that are gone, and a context that has
// ended are coped with. What a strategy promises beyond that is checked where an option says so.
//
// One thing cannot be seen from within one process: a result that depends on the process, e.g. by hash/maphash. Keep a golden
// result beside your strategy.
package strategytest
