package assignment

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/partigo/parti/assignment/plan"
	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// TestBrokenStrategies is row 26: the last good assignment stays, what belonged to the dead is re-homed, it is counted, and the
// lead moves on.
func TestBrokenStrategies(t *testing.T) {
	natstest.Long(t)
	forever := make(chan struct{})
	defer close(forever)
	cases := map[string]func(context.Context, types.AssignmentInput) ([]int, error){
		"error":  func(context.Context, types.AssignmentInput) ([]int, error) { return nil, errTest },
		"panic":  func(context.Context, types.AssignmentInput) ([]int, error) { panic("boom") },
		"goexit": func(context.Context, types.AssignmentInput) ([]int, error) { runtime.Goexit(); return nil, nil },
		"nil":    func(context.Context, types.AssignmentInput) ([]int, error) { return nil, nil },
		"loses a partition": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			return make([]int, len(in.Partitions)-1), nil
		},
		"too many": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			return make([]int, len(in.Partitions)+1), nil
		},
		"nobody": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			owners := make([]int, len(in.Partitions))
			owners[0] = types.NoOwner
			return owners, nil
		},
		"dead worker": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			owners := make([]int, len(in.Partitions))
			owners[0] = len(in.Workers)
			return owners, nil
		},
		"writes to its input": func(_ context.Context, in types.AssignmentInput) ([]int, error) {
			clear(in.Partitions)
			clear(in.Workers)
			clear(in.Previous)
			return nil, nil
		},
		"waits for its context": func(ctx context.Context, _ types.AssignmentInput) ([]int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	for name, broken := range cases {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
				e := newCalcEnv(t, env)
				c, s := e.steady("a", "b", "c")
				before := e.owners(s)
				e.start(func(c *Config) { c.Strategy = types.StrategyFunc(broken) })
				time.Sleep(6 * time.Second)
				require.Positive(t, e.calc.Status().StrategyFailures)
				require.ErrorContains(t, e.calc.Status().LastError, "strategy")
				e.fleet.leave("a")
				_, s, took := e.awaitCommit(c.Version, time.Minute)
				require.Less(t, took, 6*time.Second)
				after := e.owners(s)
				require.Len(t, after, 10)
				for p, w := range before {
					if w != "a" {
						require.Equal(t, w, after[p])
					}
				}
				began := time.Now()
				err := <-e.stepDown
				require.ErrorContains(t, err, "5 times in a row")
				t.Logf("stepped down after another %v", time.Since(began))
				require.False(t, e.calc.IsStarted())
			})
		})
	}
}

func TestHungStrategyIsCalledOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		release := make(chan struct{})
		calls := 0
		hang := types.StrategyFunc(func(ctx context.Context, in types.AssignmentInput) ([]int, error) {
			if calls++; calls == 1 {
				<-release
			}
			return strategy.Sticky().Assign(ctx, in)
		})
		e.fleet.join("a", "b")
		e.start(func(c *Config) { c.Strategy = hang; c.MaxStrategyFailures = 100 })
		c, s, took := e.awaitCommit(0, time.Minute)
		require.InDelta(t, 7, took.Seconds(), 0.1)
		require.Len(t, e.owners(s), 10)
		e.fleet.leave("a")
		_, _, took = e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond, "no waiting for a strategy that hangs already")
		require.Equal(t, 1, calls)
		require.Equal(t, 1, e.calc.Status().HungCalls)
		close(release)
		env.WaitFor(time.Minute, "recovery", func() bool { return e.calc.Status().StrategyFailures == 0 })
		require.Zero(t, e.calc.Status().HungCalls)
		require.NoError(t, e.calc.Status().LastError)
		require.Empty(t, e.stepDown)
	})
}

func TestStopNeverWaitsForUserCode(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		release := make(chan struct{})
		defer close(release)
		e.fleet.join("a")
		e.start(func(c *Config) {
			c.Strategy = types.StrategyFunc(func(context.Context, types.AssignmentInput) ([]int, error) { <-release; return nil, nil })
		})
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, types.CalculatorRebalancing, e.calc.GetState())
		e.source.behave(func(context.Context) error { <-release; return nil })
		e.source.signals <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		require.NoError(t, e.calc.Stop(t.Context()))
		require.Less(t, time.Since(began), 10*time.Millisecond)
		require.NoError(t, e.calc.Stop(t.Context()), "idempotent")
		e.quiet(time.Minute)
		require.Zero(t, e.committer.commits.Load())
		require.Empty(t, e.stepDown)
	})
}

func TestStopEndsAPublish(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		block := func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", types.ErrOutcomeUnknown, ctx.Err())
		}
		e.committer.before.Store(&block)
		e.fleet.join("a")
		e.start()
		time.Sleep(3 * time.Second)
		require.Equal(t, types.CalculatorRebalancing, e.calc.GetState())
		began := time.Now()
		require.NoError(t, e.calc.Stop(t.Context()))
		require.Less(t, time.Since(began), 10*time.Millisecond)
		e.quiet(time.Minute)
	})
}

func TestStopWithoutAnAnswer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		e.fleet.leave("a")
		e.awaitCommit(c.Version, time.Second)
		e.leader.Gate().Hold(natstest.Both) // a black hole: the connection stays up
		e.source.set(20)
		e.source.signals <- struct{}{}
		time.Sleep(testTTL/2 + time.Second) // a publish and a listing wait for their answers
		began := time.Now()
		require.NoError(t, e.calc.Stop(t.Context()))
		t.Logf("stopped within %v", time.Since(began))
		require.Less(t, time.Since(began), 2*time.Second)
		e.leader.Gate().Heal()
		e.quiet(time.Minute)
	})
}

func TestSuspiciousSource(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")

		e.source.set(0)
		e.source.signals <- struct{}{}
		time.Sleep(1500 * time.Millisecond)
		require.True(t, e.calc.Status().SourceSuspicious)
		require.ErrorIs(t, e.calc.Status().LastError, types.ErrSuspiciousObservation)
		e.source.set(10) // it was a glitch
		e.quiet(time.Minute)
		require.False(t, e.calc.Status().SourceSuspicious)

		e.source.set(4)
		e.source.signals <- struct{}{}
		c, s, took := e.awaitCommit(c.Version, time.Minute)
		require.InDelta(t, 2, took.Seconds(), 0.1, "three looks, one second apart")
		require.Len(t, e.owners(s), 4)

		e.source.set(0)
		require.NoError(t, e.calc.Refresh(t.Context()), "somebody vouches for it")
		_, s = e.commit()
		require.Empty(t, e.owners(s))
		require.Equal(t, []string{"a", "b"}, workersOf(s))
	})
}

func TestSourceFaults(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		release := make(chan struct{})
		defer close(release)
		c, s := e.steady("a", "b", "c")
		before := e.owners(s)
		for _, fault := range []func(context.Context) error{
			func(context.Context) error { return errTest },
			func(context.Context) error { panic("boom") },
			func(context.Context) error { <-release; return nil },
		} {
			e.source.behave(fault)
			e.source.signals <- struct{}{}
			time.Sleep(11 * time.Second)
			require.ErrorIs(t, e.calc.Status().LastError, types.ErrSourceFailed)
		}
		require.Equal(t, 1, e.calc.Status().HungCalls)
		looks := e.source.looks()
		e.fleet.leave("a")
		_, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 50*time.Millisecond)
		for p, w := range e.owners(s) {
			if before[p] != "a" {
				require.Equal(t, before[p], w)
			}
		}
		time.Sleep(time.Minute)
		require.Equal(t, looks, e.source.looks(), "no second call while one hangs")

		// A new leader goes on with the partitions of the last commit.
		e.fleet.leave("b")
		v := e.calc.CurrentVersion()
		e.awaitCommit(v, time.Second)
		v = e.calc.CurrentVersion()
		e.stop()
		e.fleet.join("d")
		e.source.behave(func(context.Context) error { return errTest })
		e.start()
		_, s, took = e.awaitCommit(v, time.Minute)
		require.Less(t, took, 200*time.Millisecond)
		require.Len(t, e.owners(s), 10)
	})
}

func TestColdStartWaitsForTheSource(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.source.behave(func(context.Context) error { return errTest })
		e.fleet.join("a")
		e.start()
		e.quiet(time.Minute)
		e.source.behave(nil)
		_, s, took := e.awaitCommit(0, time.Minute)
		require.Less(t, took, 30*time.Second+time.Second, "the longest wait between two attempts, and the work after it")
		require.Len(t, e.owners(s), 10)
	})
}

func TestTransientErrorsDoNotLatch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		attempts := 0
		fail := func(context.Context) error { attempts++; return errTest }
		e.committer.before.Store(&fail)
		e.fleet.join("a")
		e.start()
		time.Sleep(time.Minute)
		require.ErrorIs(t, e.calc.Status().LastError, errTest)
		require.Greater(t, attempts, 5)
		require.Less(t, attempts, 20, "backs off")
		e.committer.before.Store(nil)
		_, s, took := e.awaitCommit(0, time.Minute)
		require.LessOrEqual(t, took, lastJobRetry)
		require.Len(t, e.owners(s), 10)
		require.NoError(t, e.calc.Status().LastError)
	})
}

func TestConflictBootstrapsAnew(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		ent, err := e.outside.Control.Get(t.Context(), record.CommitKey)
		require.NoError(t, err)
		_, err = e.outside.Control.Put(t.Context(), record.CommitKey, ent.Value, ent.Revision, 0) // same words, another revision
		require.NoError(t, err)
		e.source.set(11)
		require.NoError(t, e.calc.Refresh(t.Context()), "a conflict is not the caller's business")
		got, s := e.commit()
		require.Greater(t, got.Version, c.Version)
		require.Len(t, e.owners(s), 11)
	})
}

func TestLeadershipLostEndsIt(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.steady("a", "b")
		lost := func(context.Context) error { return types.ErrLeadershipLost }
		e.committer.before.Store(&lost)
		e.fleet.leave("a")
		require.ErrorIs(t, <-e.stepDown, types.ErrLeadershipLost)
		require.ErrorIs(t, e.calc.TriggerRebalance(t.Context()), types.ErrNotLeader)
	})
}

// panicking panics in the loop itself.
type panicking struct{ types.NopMetrics }

func (panicking) WorkersSeen(int) { panic("boom") }

func TestPanicInTheLoopStepsDown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		e.fleet.join("a")
		e.start(func(c *Config) { c.Metrics = panicking{} })
		require.ErrorIs(t, <-e.stepDown, errPanic)
		require.False(t, e.calc.IsStarted())
	})
}

func TestPanicInAJobStepsDown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		boom := func(context.Context) error { panic("boom") }
		e.committer.before.Store(&boom)
		e.fleet.join("a")
		e.start()
		require.ErrorIs(t, <-e.stepDown, errPanic)
	})
}

// checkReissued checks that every entry is new, and names every incarnation that was seen.
func checkReissued(t *testing.T, s *plan.State, version int64, holders ...types.Holder) {
	t.Helper()
	for _, sl := range s.Slices {
		for _, en := range sl.Entries {
			require.Equal(t, version, en.Epoch)
			var from []types.Holder
			for _, f := range en.From {
				from = append(from, f.Holder)
			}
			for _, h := range holders {
				require.Contains(t, from, h)
			}
		}
	}
}

func TestLostCommit(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		old, _ := e.steady("a", "b")
		raw, err := e.outside.Control.Get(t.Context(), record.CommitKey)
		require.NoError(t, err)
		e.fleet.join("c")
		c, s, _ := e.awaitCommit(old.Version, time.Minute)
		e.fleet.ack(c.Version)
		before := e.owners(s)
		e.quiet(12 * time.Second)

		for _, value := range [][]byte{raw.Value, nil} { // an older commit comes back; there is none any more
			c, _ = e.commit()
			e.stop()
			e.dropCommit(value)
			e.start()
			v := c.Version
			c, s, took := e.awaitCommit(v, time.Minute)
			require.Less(t, took, 100*time.Millisecond)
			require.Equal(t, types.LifecycleRecovery, c.Lifecycle)
			require.Greater(t, c.Version, v)
			checkReissued(t, s, c.Version, e.fleet.holder("a"), e.fleet.holder("b"), e.fleet.holder("c"))
			require.Len(t, e.owners(s), len(before))
			e.fleet.ack(c.Version)
			e.quiet(time.Minute)
		}
	})
}

func TestUnreadableCommitIsGivenUp(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, env *natstest.Env) {
		e := newCalcEnv(t, env)
		c, _ := e.steady("a", "b")
		e.stop()
		e.dropCommit([]byte("{}"))
		e.start()
		got, s, took := e.awaitCommit(c.Version, time.Minute)
		require.Less(t, took, 20*time.Second)
		require.Greater(t, got.Version, c.Version)
		checkReissued(t, s, got.Version, e.fleet.holder("a"), e.fleet.holder("b"))
	})
}
