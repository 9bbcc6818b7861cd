// Package natstest runs real NATS servers for tests: one server in virtual time ([Bubble]), one in real time
// ([Single]), and three as a cluster whose routes can be cut ([NewCluster]). Each worker of a test has a [Client] of its
// own, with a [Gate] between it and the server that can cut, hold or delay the traffic.
//
// # Virtual time
//
// Inside a bubble (testing/synctest) time advances only when every goroutine is blocked, so a window of 30 s costs
// nothing and nothing needs a margin. The server runs in the bubble too and is reached through memory, not sockets.
// Rules, each of which costs an afternoon when it is forgotten:
//
//   - Start a bubble with [Bubble], never with synctest.Test. nats.go keeps a global pool of timers; a timer of one bubble
//     that is taken up in another one (or outside) is fatal. Bubble empties the pool before and after.
//   - No t.Parallel and no t.Run inside. For a table, call t.Run outside and Bubble in each case. Nothing else may use
//     NATS in the process meanwhile, because of the same pool.
//   - No mutex may be held over anything that waits for time. A goroutine that waits for a mutex does not count as
//     blocked, so time stands still for good. Bubble notices after three minutes and says so.
//   - Whatever is started in the bubble ends before it does. Clients and the server are ended by Bubble, after the
//     t.Cleanup functions of the test; all other goroutines are the test's. Bubble lists those that are left.
//   - Channels and timers made outside the bubble do not count as blocking either: make them inside.
//   - A blocked test never runs into the deadlock detection, since the server has timers and time goes on:
//     [WithVirtualLimit] ends it.
//
// # Determinism
//
// The same scenario gives the same events at the same nanosecond, if
//
//   - streams use memory storage: file storage waits for the disk in real time and jitters by 0.25 s in virtual time. Use
//     it only where a stream has to survive [Server.Restart];
//   - no two things happen at the same instant. Each client has a delay and a reconnect interval of its own, distinct to
//     the nanosecond, so that requests sent at one instant arrive one after the other; and the requests of one client
//     arrive a nanosecond apart. The test's own random decisions come from one seeded source per node;
//   - a test that reacts to a message by a cut, a hold or the like sleeps a nanosecond before, time.Sleep(1): that lets
//     everything else which belongs to this instant happen first, e.g. other messages that are just arriving. Within one
//     instant, the goroutines of one client run in any order;
//   - connections are not held for minutes: the server pings at random intervals, so the moment at which it gives up a
//     dead connection (after 4 min or so) is not reproducible.
//
// # Outside tests
//
// [NewServer], [Server.Connect] and Gate need no testing.TB, so that programs can use them.
package natstest
