// Package consumer reads JetStream in strict order per partition by groups of readers: Kafka-style consumer groups, without a coordinator to
// deploy and without one message in flight at a time.
//
//	r, err := consumer.NewReader(js, "order-processors", 64, consumer.WithLayout(layout))
//	err = r.Process(ctx, func(ctx context.Context, m consumer.Message) error { … })   // or Fetch and Ack, or All
//	err = r.Close(ctx)
//
// # The model
//
// A group has a fixed number of partitions. Each is a subject, or a filter with wildcards, of some stream; a [Layout] or [Resolver] says which. A
// [Reader] is a worker of the group's parti.Manager, and reads the partitions that this gives it. For each partition the group has an
// [Offset]: the stream sequence up to which everything has been processed. Reading begins behind the offset and goes on in the order of
// the stream; nothing is ever redelivered by the server, so nothing can arrive out of order.
//
// The server's consumers that a Reader uses are ephemeral and know nothing of the group: they can be deleted at any time and are made
// anew. A stream that holds up to 64 partitions of the group is read by a consumer for each; one that holds more by one consumer for each
// Reader, whose messages are sorted by subject, since hundreds of interleaved filters are more than a server can serve.
//
// # Who has authority
//
// The offset has. Whoever takes a partition over claims its offset by a write that names the revision it read and carries the new, higher
// epoch. From then on every write of an earlier owner fails, whatever that one believes of its lease, and its Ack returns
// [ErrPartitionLost]. What a message's handler does elsewhere is fenced there, with [Message.Epoch].
//
// A stream is known by name and creation time, which are stored with the offset, and looked at when reading begins, after each new
// consumer is made, when the connection is made anew, and once a second. An offset is never applied to another stream
// ([ErrStreamChanged], [WithRecreated]), and messages that were removed before they were read are reported ([ErrExpired], [WithExpired]). Of a replicated stream,
// the server that answers may know less than was read from another one: then nothing is read until it knows as much, and only after
// 30 s the stream is taken to have lost its end. After the server was away the last message that was read is looked at, so that what a stream has in
// the place of an end that it lost is not taken for that; a Reader that takes the partition over then cannot tell, unless the stream is still shorter.
//
// The streams must have the limits retention, which is the default: with interest or work-queue retention the server deletes what it has delivered.
// Such a stream is not read, and [Hooks.OnError] says why.
//
// # What can repeat, and what cannot be missed
//
// A message is handed out again if and only if no offset at or beyond it was stored:
//
//   - Ack returned nil: it never comes again, to anybody.
//   - Ack returned an error, or was not called: it may.
//   - All: the message that the loop has in hand when its partition goes elsewhere comes again there.
//   - AckLater, All and Process: what was acknowledged within the last 100 ms or 100 messages of a partition (see [WithCommit]; the time is
//     longer where more than 20 partitions of a Reader have something to be stored) comes again if
//     the process dies or loses its lease before it is stored. It is never more than ten times that number of messages of a partition, the one in hand
//     included, and with Fetch what the last call returned in addition: while so many cannot be stored, nothing more of it is handed out. When a partition is revoked in good order (a reader joins or leaves, Close) it is stored before
//     the partition is released, so nothing that was acknowledged repeats; unless it cannot be stored for 5 s, or until the lease or the context of Close
//     ends ([Hooks.OnLost]).
//   - Fetch: what was handed out and not acknowledged when the partition goes elsewhere is handed out by the next owner, and its later acknowledgement
//     here fails.
//   - Process: a handler that runs when the partition is revoked finishes its message first. One that runs when the lease is lost has its
//     context cancelled, and the message comes again.
//   - Seek makes come again whatever follows the position.
//
// Repeats come in order, from the offset on: after a change of owner a partition goes back by some messages and passes none over. No message is missed unless
// it was removed from its stream, which is reported if the stream's beginning has moved ([ExpiredPolicy]), or passed over by a policy ([PoisonSkip], [WithDeadLetter], [ExpiredSkip],
// [RecreatedLatest]) or by Seek. The exception is documented with the policy: a range is reported as expired within a second, so
// [ExpiredFail] may stop a partition after messages behind the gap were handed out.
//
// # What happens on failure
//
// A message that a handler fails on is repeated in place, with growing waits; nothing overtakes it, and other partitions go on. Then the
// poison policy applies, see [WithPoison] and [WithDeadLetter]. A stopped partition stays owned until it is resumed, moved by Seek, or goes elsewhere, where the
// same message is tried again.
//
// A consumer that was deleted, a gap in its deliveries, a new connection, a restarted server: the partition is read anew behind the last
// message taken in. A connection that stays away longer than the lease: everything is lost ([Hooks.OnLost]), others take over, and the Reader takes part again when it
// can. A stream that does not exist yet is waited for. What cannot be done is reported by [Hooks.OnError] and repeated.
//
// A bucket of offsets that vanishes is made anew, and every Reader stores in it what it knows; partitions that nobody owned at that time begin where
// [WithStart] says. A NATS connection that is closed for good ends the Reader, see [Reader.Close].
//
// # Memory
//
// What is read ahead is bounded in messages and bytes, for each partition and in all, see [WithBuffer] and [WithTotalBuffer]. The server is asked for no
// more than fits. Always at least one message is asked for, however large it is, and one pull may exceed a bound in bytes
// by what the size of messages changes from one pull to the next, up to the largest message the stream accepts.
//
// # The group as a whole
//
// [Reader.Manager] has the group's state, and [WithManagerOptions] its settings. The leader among the readers does what a coordinator would. A
// process that only coordinates is the command `parti coordinator <group>`, or a parti.Manager with the namespace <group>,
// parti.WithRole(parti.RoleCoordinator), and the partitions "0" to "N-1" as its source; with parti.WithRole(parti.RoleFollower) among their manager
// options the readers leave leading to it. Every exported method is safe for concurrent use.
package consumer
