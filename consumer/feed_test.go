package consumer

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// What arrives while a feed is about to ask for more takes room too, although it is neither asked for any more nor was it there when the room was measured.
func TestFeedAsksForNoMoreThanFits(t *testing.T) {
	bubble(t, func(w *world) {
		w.create()
		const fit = 100
		a, held, arriving := w.join(), 0, true
		f := &feed{
			r: a.Reader, stream: "ORDERS", name: "none", inbox: a.nc.NewInbox() + ".", next: 1, grow: 10 * fit, asked: fit, low: fit / 2,
			broken: make(chan struct{}), sink: func(*nats.Msg, metadata) { held++ },
		}
		f.room = func() room {
			free := room{messages: fit - held, capacity: fit, bytes: 1 << 20}
			if arriving { // all that was asked for, before the room is used
				arriving = false
				for n := 1; n <= fit; n++ {
					f.receive(&nats.Msg{Reply: fmt.Sprintf("$JS.ACK.ORDERS.none.1.%d.%d.1.0", n, n)})
				}
			}
			return free
		}
		f.request()
		require.NoError(t, f.cause())
		require.Equal(t, fit, held)
		require.Zero(t, f.asked)
	})
}
