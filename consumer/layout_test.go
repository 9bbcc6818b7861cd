package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// The server's own mapping and Publisher agree about 10,000 keys.
func TestPublisherAgreesWithTheServer(t *testing.T) {
	natstest.Long(t)
	bubble(t, func(w *world) {
		w.create()
		p, err := NewPublisher(w.js, w.layout)
		require.NoError(t, err)
		ctx := w.ctx(time.Hour)
		keys := make([]string, 10_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("%s-%d", []string{"order", "Kunde", "ключ", "k_é", "a"}[i%5], i*i)
			_, err := p.PublishMsgAsync(keys[i], &nats.Msg{})
			require.NoError(t, err)
			if i%1000 == 999 {
				<-w.js.PublishAsyncComplete()
			}
		}
		s, err := w.js.Stream(ctx, "ORDERS")
		require.NoError(t, err)
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		require.NoError(t, err)
		require.Len(t, info.State.Subjects, len(keys))
		used := map[int]int{}
		for _, key := range keys {
			used[p.Partition(key)]++
			require.Positive(t, info.State.Subjects[fmt.Sprintf("orders.%d.%s", p.Partition(key), key)], key)
		}
		require.Len(t, used, 17)
		for _, bad := range []string{"", "a.b", "a b", "*", "a>", "a\nb"} {
			_, err := p.Publish(ctx, bad, nil)
			require.ErrorIs(t, err, ErrInvalidKey)
		}
		_, err = p.Publish(ctx, "order-0", []byte("last"))
		require.NoError(t, err)
		a := w.join()
		n := 0
		for m, err := range a.All(ctx) {
			require.NoError(t, err)
			key := m.Subject[strings.LastIndex(m.Subject, ".")+1:]
			require.Equal(t, p.Partition(key), m.Partition)
			if n++; n == len(keys)+1 {
				break
			}
		}
	}, withLayout(Mapped("ORDERS", "orders", 17)))
}

func TestLayouts(t *testing.T) {
	for name, c := range map[string]struct {
		layout  Layout
		streams []string
		stream  string
		subject string
	}{
		"subject per partition": {SubjectPerPartition("S", "s", 100), []string{"S"}, "S", "s.70"},
		"stream per partition":  {StreamPerPartition("S", "s", 2), []string{"S-0", "S-1"}, "S-70", "s.70"},
		"spread":                {SpreadOver("S", "s", 130, 0), []string{"S-0", "S-1", "S-2"}, "S-1", "s.70"},
		"mapped":                {Mapped("S", "s", 100), []string{"S"}, "S", "s.70.*"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.layout.validate())
			var names []string
			for _, s := range c.layout.Streams(jetstream.StreamConfig{}) {
				names = append(names, s.Name)
			}
			require.Equal(t, c.streams, names)
			stream, subject := c.layout.Resolve(70)
			require.Equal(t, c.stream, stream)
			require.Equal(t, c.subject, subject)
		})
	}
	require.ErrorIs(t, SpreadOver("a.b", "", 0, -1).validate(), ErrInvalidConfig)
}

func TestPublisherEveryLayout(t *testing.T) {
	for name, l := range map[string]Layout{
		"subject": SubjectPerPartition("ORDERS", "orders", 5), "stream": StreamPerPartition("ORDERS", "orders", 5),
		"spread": SpreadOver("ORDERS", "orders", 5, 2), "mapped": Mapped("ORDERS", "orders", 5),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.create()
				p, err := NewPublisher(w.js, l)
				require.NoError(t, err)
				a := w.join()
				ctx := w.ctx(time.Minute)
				for i := range 50 {
					_, err := p.Publish(ctx, fmt.Sprint("key", i), []byte(fmt.Sprint("key", i)))
					require.NoError(t, err)
				}
				n := 0
				for m, err := range a.All(ctx) {
					require.NoError(t, err)
					require.Equal(t, p.Partition(string(m.Data)), m.Partition)
					if n++; n == 50 {
						break
					}
				}
			}, withLayout(l))
		})
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{"a.b", "a.b", true}, {"a.*", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "a", false}, {"a.*", "a.b.c", false}, {"a.*.c", "a.b.c", true},
		{"*.b", "a.b", true}, {">", "a", true}, {"a.b.c", "a.b", false}, {"a", "b", false},
	} {
		require.Equal(t, c.want, matches(c.filter, c.subject), "%s %s", c.filter, c.subject)
	}
}

func TestParseReply(t *testing.T) {
	for _, reply := range []string{
		"$JS.ACK.ORDERS.c.1.17.3.1700000000000000000.42", "$JS.ACK.hub.ACCHASH.ORDERS.c.1.17.3.1700000000000000000.42",
		"$JS.ACK._.ACCHASH.ORDERS.c.1.17.3.1700000000000000000.42.token",
	} {
		m, ok := parseReply(reply)
		require.True(t, ok, reply)
		require.Equal(t, metadata{streamSeq: 17, consumerSeq: 3, stored: 1700000000000000000, pending: 42}, m)
	}
	for _, reply := range []string{"", "_INBOX.a.1", "$JS.ACK.a", "$JS.ACK.ORDERS.c.1.x.3.4.5", "$JS.ACK.ORDERS.c.1.1.3.4"} {
		_, ok := parseReply(reply)
		require.False(t, ok, reply)
	}
}
