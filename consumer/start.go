package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/backoff"
	"github.com/partigo/parti/kv"
	"github.com/partigo/parti/types"
)

// start finds the offsets and starts the Manager, both within the Manager's StartTimeout. What it has started is ended by Close.
func (r *Reader) start() {
	defer close(r.started)
	ctx := r.ctx
	if m := r.manager.Config(); !m.WaitForServer {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.StartTimeout)
		defer cancel()
	}
	store, err := r.findOffsets(ctx)
	if err != nil {
		r.startErr = fmt.Errorf("%w: %w", ErrReaderClosed, err)
		return
	}
	r.offsets.Store(store)
	if err := r.rounds.begin(); err != nil {
		r.startErr = fmt.Errorf("%w: %w", ErrReaderClosed, err)
		return
	}
	following, stop := context.WithCancel(r.ctx)
	r.jobs.Go(func() { r.rounds.loop(following) })
	status := r.nc.StatusChanged(nats.CONNECTED)
	r.jobs.Go(func() {
		defer stop()
		defer r.nc.RemoveStatusListener(status)
		r.followConnection(following, status)
	})
	if err := r.manager.Start(ctx); err != nil {
		stop()
		r.startErr = fmt.Errorf("%w: %w", ErrReaderClosed, err)
		return
	}
	closed := r.nc.StatusChanged(nats.CLOSED)
	if r.nc.IsClosed() { // before anybody listened
		closed <- nats.CLOSED
	}
	r.jobs.Go(func() {
		defer r.nc.RemoveStatusListener(closed)
		r.endWithConnection(closed)
	})
	r.jobs.Go(r.followOffsets)
}

// findOffsets repeats what time may cure until ctx ends.
func (r *Reader) findOffsets(ctx context.Context) (*kv.Store, error) {
	retry := backoff.New(50*time.Millisecond, time.Second)
	for {
		if r.nc.IsClosed() {
			return nil, parti.ErrConnectionClosed
		}
		call, done := context.WithTimeout(ctx, 5*time.Second)
		store, err := ensureOffsets(call, r.js, &r.cfg)
		done()
		switch {
		case err == nil, errors.Is(err, types.ErrForeignBucket), errors.Is(err, types.ErrPermission), errors.Is(err, ErrInvalidConfig):
			return store, err
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
			errors.Is(err, nats.ErrNoResponders):
			return nil, fmt.Errorf("%w: %w: enable JetStream on the server and for the account", parti.ErrJetStreamDisabled, err)
		}
		r.cfg.log.Warn("waiting for the offsets", "error", err)
		if backoff.Sleep(ctx, retry.Next()) != nil {
			return nil, fmt.Errorf("%w until the start's deadline: check the address and that the server runs, or give parti.WithStartTimeout or "+
				"parti.WithWaitForServer to WithManagerOptions: %w", parti.ErrNoServer, err)
		}
	}
}
