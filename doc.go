// Package parti divides the partitions of a source among the live workers of a group, on NATS JetStream and without a
// coordinator to deploy: every worker embeds a [Manager].
//
// # Who has authority
//
// The NATS server has. A worker is alive while its heartbeat key is; the leader is whoever renews the leader key; a commit is
// what one atomic batch stored together with a renewal of that key. Any worker may lead, and nothing depends on which one does: the leader
// only computes and publishes. Whether a partition may start is decided by the worker that is to run it, from what its earlier
// holders have said themselves.
//
// # What happens on failure
//
// A worker that dies is replaced when its key expires. A worker that cannot reach the server cancels its partitions before its
// key can expire. A leader that dies or is cut off is replaced; a commit of its own that is still under way can not land. A
// strategy or a source that fails leaves the last good assignment in force. What a frozen process may still do to the outside is
// stopped there by the fencing token, [Ownership.Epoch]: pass it along with every write and refuse lower ones.
//
// # Use
//
// Make a Manager with [NewManager], give it a handler with [WithHandler], start it with [Manager.Start], and stop it with
// [Manager.Stop] before the process ends. Every exported method is safe for concurrent use.
package parti
