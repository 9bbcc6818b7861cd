package strategy

import "slices"

// The tolerances of the weighing part of Sticky. A worker may end up 5 % above, or below, its fair share. When costs change by
// up to 5 % either way, a load grows to at most 1.05 times, and the share shrinks to no less than 0.95 times, what it was: so
// what was within a limit is still within 1.05/0.95 = 21/19 of it, and within 21/19 nothing is touched.
const (
	tolNum, tolDen     = 21, 20 // 1.05
	lowNum, lowDen     = 19, 20 // 0.95
	driftNum, driftDen = 21, 19 // 1.05 / 0.95
)

// limits are what loads are held against. All are monotone and homogeneous in the costs, on which the argument above rests.
type limits struct {
	high int64 // a worker with more is relieved
	low  int64 // a worker with less is filled
}

// limitsOf computes the limits for m workers.
//
// high is max(1.05 × mean, bound). The bound is the largest of: the mean, rounded up; the heaviest partition; and for every
// k ≥ 1 the sum of the k+1 lightest among the k·m+1 heaviest partitions, since some worker must have k+1 of those, and they
// weigh no less. (The classic lower bounds for scheduling on identical machines, e.g. Dell'Amico and Martello, "Optimal
// Scheduling of Tasks on Identical Parallel Processors", 1995.)
//
// low is 0.95 × the fair share of a worker without giants: the mean after the heaviest partitions are set aside, with a
// worker for each, as long as the next one outweighs the mean of the rest.
func limitsOf(cost []int64, total int64, m int) limits {
	n := len(cost)
	m64 := int64(m)
	high := max(tolNum*total/(tolDen*m64), ceilDiv(total, m64))
	low := ceilDiv(lowNum*total, lowDen*m64)
	if heaviest := slices.Max(cost); heaviest <= total/(lowDen*m64) {
		return limits{high, low} // then no bound can exceed mean + heaviest, and there are no giants
	}

	desc := slices.Clone(cost)
	slices.Sort(desc)
	slices.Reverse(desc)
	high = max(high, desc[0])
	rest, giants := total, 0
	for giants < min(n, m-1) && desc[giants] > rest/int64(m-giants) {
		rest -= desc[giants]
		giants++
	}
	low = ceilDiv(lowNum*rest, lowDen*int64(m-giants))

	sum := make([]int64, n+1) // sum[i] is what the i heaviest weigh
	for i, c := range desc {
		sum[i+1] = sum[i] + c
	}
	for k := 1; k*m < n; k++ {
		high = max(high, sum[k*m+1]-sum[k*m-k])
	}
	return limits{high, low}
}

// drifted widens the limits by what a change of costs by ±5 % can do to loads within them, and by the rounding.
func (l limits) drifted() limits {
	return limits{high: scale(l.high+1, driftNum, driftDen), low: scale(max(0, l.low-1), driftDen, driftNum)}
}
