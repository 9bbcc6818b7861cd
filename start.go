package parti

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
)

// unclaimed says why no worker ID was claimed before the start's context ended.
func (m *Manager) unclaimed(ctx context.Context) error {
	var s Status
	m.health.fill(&s)
	switch {
	case s.LastError == nil:
		return fmt.Errorf("parti: no worker ID claimed: %w", ctx.Err())
	case errors.Is(ctx.Err(), context.Canceled): // the server may have needed a moment more
	case kv.IsTimeout(s.LastError), errors.Is(s.LastError, kv.ErrUnavailable):
		return fmt.Errorf("%w: no worker ID claimed: %w: %w", ErrNoServer, ctx.Err(), s.LastError)
	}
	return fmt.Errorf("parti: no worker ID claimed: %w: %w", ctx.Err(), s.LastError)
}

// findBuckets creates or verifies the buckets. It repeats what time may cure until ctx ends.
func (m *Manager) findBuckets(ctx context.Context) (kv.Buckets, error) {
	retry := backoff.New(50*time.Millisecond, time.Second)
	began := time.Now()
	var last error // why it was tried again
	for {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		buckets, err := kv.EnsureBuckets(call, m.js, m.bucketConfig())
		cancel()
		if err == nil || final(err) {
			return buckets, err
		}
		if errors.Is(ctx.Err(), context.Canceled) { // that is why this try failed
			return kv.Buckets{}, givenUp(ctx, last)
		}
		last = err
		m.set.Logger.Warn("waiting for NATS", "error", err)
		m.health.fail(err)
		if time.Since(began) >= m.set.StartTimeout {
			m.health.degrade(causeStart, fmt.Sprintf("the start waits for NATS: %v", err))
		}
		if backoff.Sleep(ctx, retry.Next()) == nil {
			continue
		}
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return kv.Buckets{}, givenUp(ctx, last)
		case !kv.IsTimeout(err) && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, ErrNoServer):
			return kv.Buckets{}, fmt.Errorf("parti: NATS refuses, until the start's deadline: %w", err)
		}
		return kv.Buckets{}, fmt.Errorf("%w until the start's deadline: check the address and that the server runs, or use "+
			"parti.WithWaitForServer to wait: %w", ErrNoServer, err)
	}
}

// givenUp is the error of a start that somebody has ended. last is what it waited for; nil: it had not waited.
func givenUp(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("parti: the start was given up: %w", ctx.Err())
	}
	return fmt.Errorf("parti: the start was given up: %w; it waited because of: %w", ctx.Err(), last)
}

func (m *Manager) bucketConfig() kv.BucketConfig {
	return kv.BucketConfig{
		Namespace: m.set.Namespace, HeartbeatTTL: m.set.HeartbeatTTL, Replicas: m.set.Replicas, Storage: m.set.Storage, Logger: m.set.Logger,
	}
}

// final reports whether an error of the start will not go away by waiting.
func final(err error) bool {
	for _, f := range []error{ErrConnectionClosed, ErrServerTooOld, ErrJetStreamDisabled, ErrPermission, ErrForeignBucket, ErrInvalidConfig} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}
