package assignment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/partigo/parti/assignment/record"
	"github.com/partigo/parti/types"
)

// versionGap is how far the first version of a term lies above everything that was seen: commits that the store has lost, and
// nobody alive remembers, are assumed to be fewer.
const versionGap = 1 << 16

// CurrentVersion returns the highest version that was seen or used so far. Hand it to the next term's publisher as
// PublisherConfig.HighestVersion.
func (p *AssignmentPublisher) CurrentVersion() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.highest
}

// NextVersion returns the version for the next commit. seen are the versions that the caller knows of: applied by live
// workers, announced by earlier leaders.
//
// The first version of a term is max(65,536 + the highest seen, Unix time in milliseconds), so that it is new also after the
// store has lost commits, or everything; each further one is one higher. It jumps again where seen holds a version that
// no commit known here has: then commits were lost meanwhile. The same version is returned until Publish has used it,
// whatever came of that.
//
// After the loss of everything, memory included, it is new where leaders have changed no more often than every 65.5 s on average; else when
// the clock has caught up (TestBothBucketsRestoredAndEverythingForgotten, TestVersionsAheadOfTheClockAreForgotten).
//
// Numbers from types.VersionLimit on are damage and ignored. Where the gap would lead there, which only a number that is damage but still
// in bounds can bring about, the next version is one higher, and below the limit of the next millisecond.
func (p *AssignmentPublisher) NextVersion(seen ...int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	top := p.highest
	for _, v := range seen {
		if types.ValidVersion(v) {
			top = max(top, v)
		}
	}
	if p.begun && top == p.highest {
		return top + 1
	}
	if top >= types.VersionLimit()-versionGap {
		return top + 1
	}
	return max(top+versionGap, time.Now().UnixMilli())
}

// use takes version for an attempt to publish; it cannot be taken again.
func (p *AssignmentPublisher) use(version int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version <= p.highest {
		return fmt.Errorf("%w: version %d was used or seen before (%d): take NextVersion", types.ErrInvalidConfig, version, p.highest)
	}
	p.highest, p.begun = version, true
	return nil
}

func (p *AssignmentPublisher) saw(version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if types.ValidVersion(version) {
		p.highest = max(p.highest, version)
	}
}

// DiscoverHighestVersion reads the highest version that the store knows of, in the commit, the commit logs and the leader key,
// takes it into account for NextVersion, and returns it. Bootstrap does this too. Values that cannot be decoded, or that say more than is
// possible, count nothing;
// a read that fails is an error.
func (p *AssignmentPublisher) DiscoverHighestVersion(ctx context.Context) (int64, error) {
	entries, err := p.cfg.Store.List(ctx, record.CommitKey, LeaderKey)
	if err != nil {
		return 0, fmt.Errorf("assignment: discover versions: %w", err)
	}
	var highest int64
	take := func(versions ...int64) {
		for _, v := range versions {
			if types.ValidVersion(v) { // one that is damage does not hide the others
				highest = max(highest, v)
			}
		}
	}
	for _, e := range entries {
		// Also of a commit with a newer schema, or one that is damaged in other places, the version counts.
		var v struct {
			Version       int64 `json:"version"`
			CommitVersion int64 `json:"commit_version"`
		}
		if json.Unmarshal(e.Value, &v) == nil {
			take(v.Version, v.CommitVersion)
		}
	}
	// A marker of an ended log tells its version too.
	logs, err := p.cfg.Store.ListKeys(ctx, record.LogPrefix+"*")
	if err != nil {
		return 0, fmt.Errorf("assignment: discover versions: %w", err)
	}
	for key := range logs {
		if v, ok := record.ParseLogKey(key); ok {
			take(v)
		}
	}
	p.saw(highest)
	return highest, nil
}
