package test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/consumer"
	"github.com/partigo/parti/internal/natstest"
	"github.com/stretchr/testify/require"
)

// documentedUsers returns the users of the configuration in docs/OPERATIONS.md that comes after the heading.
func documentedUsers(t *testing.T, heading string) []*server.User {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "docs/OPERATIONS.md"), "\n"+heading+"\n")
	require.True(t, found, heading)
	_, rest, found = strings.Cut(rest, "```\njetstream:")
	require.True(t, found)
	text, _, _ := strings.Cut(rest, "```")
	path := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(path, []byte("jetstream:"+text), 0o600))
	parsed, err := server.ProcessConfigFile(path)
	require.NoError(t, err)
	return parsed.Users
}

// subjects is what was published, as the server saw it.
type subjects struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *subjects) take(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[m.Subject] = true
}

// unused returns the patterns under which nothing was published.
func (s *subjects) unused(patterns []string) (unused []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range patterns {
		used := false
		for subject := range s.seen {
			used = used || server.SubjectsCollide(p, subject)
		}
		if !used {
			unused = append(unused, p)
		}
	}
	return unused
}

// Readers live with the permissions of docs/OPERATIONS.md, whatever a Reader can do: the server refuses nothing, and nothing is allowed in vain.
func TestReaderPermissions(t *testing.T) {
	users := documentedUsers(t, "### A consumer.Reader, operators, and who only looks")
	env := natstest.Single(t, natstest.WithServerOptions(func(o *server.Options) { o.Users = users }))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	layout := consumer.SubjectPerPartition("ORDERS", "orders", 4)
	admin := env.Connect("admin", nats.UserInfo("admin", "secret"))
	js := admin.JS()
	require.NoError(t, layout.CreateStreams(ctx, js, jetstream.StreamConfig{Storage: jetstream.MemoryStorage, AllowDirect: true}))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}, Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	join := func(name, user string) (*consumer.Reader, *nats.Conn) {
		c := env.Connect(name, nats.UserInfo(user, "secret"))
		r, err := consumer.NewReader(c.JS(), "orders", 4, consumer.WithLayout(layout), consumer.WithDeadLetter("dead.orders"),
			consumer.WithOffsets(consumer.DefaultOffsetsBucket, 1, jetstream.MemoryStorage),
			consumer.WithLagAware(consumer.LagAware{Interval: 100 * time.Millisecond}), consumer.WithSharedAbove(2),
			consumer.WithManagerOptions(parti.WithStorage(jetstream.MemoryStorage), parti.WithHeartbeat(time.Second, 20*time.Second),
				parti.WithLeaderLease(5*time.Second), parti.WithWindows(time.Second, time.Second, 100*time.Millisecond),
				parti.WithCooldown(100*time.Millisecond)))
		require.NoError(t, err)
		require.NoError(t, r.Start(ctx))
		return r, c.Conn()
	}
	first, _ := join("first", "admin") // makes the buckets
	require.NoError(t, first.Close(ctx))

	saw := &subjects{seen: map[string]bool{}}
	_, err = admin.Conn().Subscribe(">", saw.take)
	require.NoError(t, err)
	require.NoError(t, admin.Conn().Flush())
	a, connA := join("a", "reader")
	b, connB := join("b", "reader")
	handled := &handling{}
	processed := readAll(ctx, t, handled, a, b)
	publisher, err := consumer.NewPublisher(js, layout)
	require.NoError(t, err)
	for _, key := range []string{"0", "1", "2", "3", "0", "1"} {
		_, err := publisher.Publish(ctx, key, []byte("good"))
		require.NoError(t, err)
	}
	_, err = publisher.Publish(ctx, "2", []byte("bad"))
	require.NoError(t, err)
	env.WaitFor(time.Minute, "all is read, and one is dead", func() bool { return handled.count() >= 6 && saw.has("dead.orders") })
	byOwner := func(what string, f func(owner *consumer.Reader) error) { // it may move meanwhile
		env.WaitFor(time.Minute, what, func() bool {
			owner := a
			if !slices.Contains(a.Assigned(), 0) {
				owner = b
			}
			err := f(owner)
			require.True(t, err == nil || errors.Is(err, consumer.ErrNotAssigned) || errors.Is(err, consumer.ErrPartitionLost), "%s: %v", what, err)
			return err == nil
		})
	}
	byOwner("seek", func(r *consumer.Reader) error { return r.Seek(ctx, 0, consumer.AtTime(time.Now().Add(-time.Hour))) })
	env.WaitFor(time.Minute, "it is read again", func() bool { return handled.count() >= 8 })
	byOwner("lag", func(r *consumer.Reader) error { _, err := r.Lag(ctx, 0); return err })
	byOwner("committed", func(r *consumer.Reader) error { _, err := r.Committed(ctx, 0); return err })
	require.NoError(t, a.Close(ctx)) // and the other takes over
	env.WaitFor(time.Minute, "one has all", func() bool { return len(b.Assigned()) == 4 })
	// Only a cluster whose stream has lost its end makes a Reader look there, see consumer.TestLostEndThatHasGrownAgain.
	seldom := []string{"$JS.API.DIRECT.GET.ORDERS", "$JS.API.STREAM.MSG.GET.ORDERS"}
	i := slices.IndexFunc(users, func(u *server.User) bool { return u.Username == "reader" })
	env.WaitFor(time.Minute, "every line is used but two", func() bool {
		return slices.Equal(saw.unused(users[i].Permissions.Publish.Allow), seldom)
	})
	require.NoError(t, b.Close(ctx))
	processed.Wait()
	require.NoError(t, connA.LastError())
	require.NoError(t, connB.LastError())
}

func (s *subjects) has(subject string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[subject]
}

// handling counts what was processed.
type handling struct {
	mu sync.Mutex
	n  int
}

func (h *handling) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func (h *handling) handle(_ context.Context, m consumer.Message) error {
	if string(m.Data) == "bad" {
		return consumer.Permanent(errors.New("cannot be read"))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	return nil
}

// readAll has the readers process until they are closed.
func readAll(ctx context.Context, t *testing.T, h *handling, readers ...*consumer.Reader) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, r := range readers {
		all.Go(func() {
			if err := r.Process(ctx, h.handle); !errors.Is(err, consumer.ErrReaderClosed) {
				t.Errorf("Process: %v", err)
			}
		})
	}
	return &all
}
