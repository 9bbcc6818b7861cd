package checker

import (
	"fmt"
	"time"
)

// Rule names what a [Violation] breaks.
type Rule string

// The rules for commits as a sequence.
const (
	CommitForm       Rule = "commit-form"       // decodes, schema 1, what must be there is there
	CommitSize       Rule = "commit-size"       // less than 8 KiB
	CommitOrder      Rule = "commit-order"      // versions strictly increase with the revisions
	CommitPrevious   Rule = "commit-previous"   // previous_revision is the revision of the commit before
	CommitNonce      Rule = "commit-nonce"      // no nonce is used twice
	CommitLog        Rule = "commit-log"        // the log holds the same bytes, written in the same batch
	CommitLost       Rule = "commit-lost"       // the commit key is not deleted, its bucket not recreated, see Checker.AllowStoreLoss
	TermRenewal      Rule = "term-renewal"      // the same batch renewed the leader key, at the revision before
	TermVersion      Rule = "term-version"      // and that renewal names the commit's version
	TermHolder       Rule = "term-holder"       // and the commit's holder
	TermRevision     Rule = "term-revision"     // leader_revision is the revision at which the present leader acquired its key
	TermOrder        Rule = "term-order"        // leader_revision does not go back
	TermEnded        Rule = "term-ended"        // no commit under a leader key that was deleted or has expired
	TermFirstVersion Rule = "term-firstversion" // the first version of a term is at least 65,536 above the highest seen
	Unguarded        Rule = "unguarded"         // leader key, commit and heartbeats are written at an expected revision only
)

// The rules for the leader key.
const (
	LeaderForm    Rule = "leader-form"    // decodes, names a holder, lives for a limited time
	LeaderSeized  Rule = "leader-seized"  // never written over another worker's key before its time is over
	LeaderTerm    Rule = "leader-term"    // a renewal names the revision at which the key was acquired
	LeaderVersion Rule = "leader-version" // commit_version does not go back within a term, and is not ahead of the commits
)

// The rules for what one commit says.
const (
	IndexForm    Rule = "index-form"    // references and shards sorted, complete, within limits, under the batch digest
	BlobMissing  Rule = "blob-missing"  // whatever a commit refers to is stored
	BlobForm     Rule = "blob-form"     // content address, compression, canonical encoding, order
	SetDigest    Rule = "set-digest"    // the reference's digest covers its entries
	Coverage     Rule = "coverage"      // assigned and parked are the source: nothing twice, nothing missing, nothing else
	Counts       Rule = "counts"        // numbers of workers and partitions
	UnknownOwner Rule = "unknown-owner" // an incarnation is listed only after a heartbeat of it
	GoneOwner    Rule = "gone-owner"    // nothing is newly given to who has left, drains or is dead
	Labels       Rule = "labels"        // nothing is newly given to a worker that lacks the label, see also AllowSpill
	Capacity     Rule = "capacity"      // who is given something has no more than it says it takes
)

// The rules between a commit and the one before.
const (
	EpochNew    Rule = "epoch-new"    // another owner (ID or incarnation): the epoch is this version, above all before
	EpochKept   Rule = "epoch-kept"   // the same owner: the same epoch
	GraceKept   Rule = "grace-kept"   // who restarts within its grace keeps what it has
	EpochForm   Rule = "epoch-form"   // 1 to version for what is owned, 0 for what is parked
	Reissued    Rule = "reissued"     // after the store lost a commit: all epochs new, `from` lists every live incarnation
	FromForm    Rule = "from-form"    // sorted, one item per incarnation, versions up to this one
	FromMissing Rule = "from-missing" // `from` keeps whoever is not proved released
	FromForeign Rule = "from-foreign" // `from` lists nobody else, and at the version that took the partition away
)

// The rules for heartbeats.
const (
	HeartbeatForm       Rule = "heartbeat-form"       // decodes, speaks for its key, known state and claim
	HeartbeatBack       Rule = "heartbeat-back"       // applied_version does not go back within an incarnation
	HeartbeatAhead      Rule = "heartbeat-ahead"      // applied_version is the version of a commit
	HeartbeatDigest     Rule = "heartbeat-digest"     // term and digest belong to that version
	HeartbeatClaim      Rule = "heartbeat-claim"      // claimed_over says what was there, and does not change
	HeartbeatSeized     Rule = "heartbeat-seized"     // a live key, or one whose last words name runs, is claimed by its own process only
	HeartbeatWait       Rule = "heartbeat-wait"       // over a deleted key a claim waits one HeartbeatTTL
	HeartbeatRisen      Rule = "heartbeat-risen"      // an incarnation that ended never comes back
	HeartbeatMany       Rule = "heartbeat-many"       // at most 64 runs in unreturned
	HeartbeatUnreturned Rule = "heartbeat-unreturned" // epochs in unreturned are at most applied_version
	HeartbeatFalse      Rule = "heartbeat-false"      // what the oracle sees running is listed or named
)

// Violation is one broken rule.
type Violation struct {
	Rule     Rule
	Key      string
	Revision uint64
	Version  int64 // of the commit concerned; 0 where there is none
	At       time.Time
	Detail   string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s at revision %d (%s, version %d): %s", v.Rule, v.Key, v.Revision, v.At.Format("15:04:05.000000"), v.Version, v.Detail)
}
