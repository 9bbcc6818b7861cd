package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// TestUses has readers that change between Fetch, All and Process, acknowledge in all ways, fail, pause and resume, while others come and go:
// what is handed out stays in order, nothing is forgotten, and nothing comes again whose offset was stored.
func TestUses(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, seed))
		opts := withOptions(WithSharedAbove(64*rng.IntN(2)), WithBuffer(1+rng.IntN(30), 1<<20), WithFetchWait(200*time.Millisecond, 0))
		bubble(t, func(w *world) {
			w.create()
			for range 20 {
				switch live := w.live(); {
				case len(live) < 2 || len(live) < 5 && rng.IntN(3) > 0:
					w.join(WithRetry(Retry{0, time.Millisecond, 100 * time.Millisecond})).use(rng.Uint64())
				default:
					m := live[rng.IntN(len(live))]
					m.finish()
					m.leave()
				}
				w.publish(rng.IntN(60))
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			}
			for _, m := range w.live() {
				m.finish()
				m.process()
			}
			w.waitRead(time.Minute)
		}, opts)
	})
}

// use makes the member hand out in changing ways, until it is stopped.
func (m *member) use(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	m.work.Go(func() {
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
			var err error
			switch rng.IntN(3) {
			case 0:
				err = m.useProcess(short, seed)
			case 1:
				err = m.useFetch(short, rng)
			case 2:
				err = m.useAll(short, rng)
			}
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				m.w.t.Errorf("%s: %v", m.name, err)
				return
			}
		}
	})
	m.work.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 2))
		for ctx.Err() == nil {
			p := rng.IntN(m.w.parts)
			m.Pause(p)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			m.Resume(p)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
	})
}

func (m *member) useProcess(ctx context.Context, seed uint64) error {
	return m.Process(ctx, func(ctx context.Context, msg Message) error {
		switch (msg.Sequence ^ seed) % 7 {
		case 0:
			<-ctx.Done()
			return ctx.Err()
		case 1:
			time.Sleep(10 * time.Millisecond)
		case 2:
			if time.Now().UnixMilli()%3 > 0 {
				return errors.New("again")
			}
		}
		m.w.ledger.record(m.name, msg)
		return nil
	})
}

func (m *member) useFetch(ctx context.Context, rng *rand.Rand) error {
	for {
		ms, err := m.Fetch(ctx, 1+rng.IntN(20))
		if err != nil {
			return err
		}
		ms = ms[:rng.IntN(len(ms)+1)]
		for _, msg := range ms {
			m.w.ledger.record(m.name, msg)
		}
		if rng.IntN(2) == 0 {
			_ = m.AckLater(ms...) // lost meanwhile
			continue
		}
		answer := m.Ack(context.Background(), ms...)
		m.w.ledger.answered(m.name, answer, ms)
	}
}

func (m *member) useAll(ctx context.Context, rng *rand.Rand) error {
	n := rng.IntN(30)
	for msg, err := range m.All(ctx) {
		if err != nil {
			return err
		}
		if n--; n < 0 {
			break
		}
		m.w.ledger.record(m.name, msg)
	}
	return nil
}
