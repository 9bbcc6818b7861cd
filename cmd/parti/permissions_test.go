package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/stretchr/testify/require"
)

// documentedUsers returns the users of the configuration in docs/OPERATIONS.md for those who are not workers.
func documentedUsers(t *testing.T) []*server.User {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "OPERATIONS.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(doc), "\n### A consumer.Reader, operators, and who only looks\n")
	require.True(t, found)
	_, rest, found = strings.Cut(rest, "```\njetstream:")
	require.True(t, found)
	text, _, _ := strings.Cut(rest, "```")
	parsed, err := server.ProcessConfigFile(save(t, "nats.conf", []byte("jetstream:"+text)))
	require.NoError(t, err)
	return parsed.Users
}

// ender is a writer that ends what is going on when something is written: an error, or what the server refuses.
type ender struct {
	natstest.Buffer
	end context.CancelFunc
}

func (e *ender) Write(p []byte) (int, error) {
	defer e.end()
	return e.Buffer.Write(p)
}

// The commands work with the permissions that docs/OPERATIONS.md gives them, the server refuses nothing, and without any one of them there is
// something that it refuses.
func TestDocumentedPermissionsOfCommands(t *testing.T) {
	users := documentedUsers(t)
	without := map[string]string{} // what a user lacks
	for _, u := range slices.Clone(users) {
		if u.Username != "inspector" && u.Username != "operator" {
			continue
		}
		for k, subject := range u.Permissions.Publish.Allow {
			if strings.Contains(subject, ".DELETE.") {
				continue // the last thing that is asked for, so the refusal may come when the command has ended
			}
			allow := slices.Delete(slices.Clone(u.Permissions.Publish.Allow), k, k+1)
			less := *u
			less.Username = fmt.Sprintf("%s-%d", u.Username, k)
			less.Permissions = &server.Permissions{Publish: &server.SubjectPermission{Allow: allow}, Subscribe: u.Permissions.Subscribe}
			without[less.Username] = subject
			users = append(users, &less)
		}
	}
	b := bench{t: t, Env: natstest.Single(t, natstest.WithTCP(), natstest.WithServerOptions(func(o *server.Options) { o.Users = users }))}
	b.auth = []nats.Option{nats.UserInfo("admin", "secret")}
	w0 := b.worker("orders", numbers(4), strategy.Sticky(), parti.WithWorkerID("pod-0"))
	w1 := b.worker("orders", numbers(4), strategy.Sticky(), parti.WithWorkerID("pod-1"))
	b.WaitFor(30*time.Second, "both have their share", func() bool { return w0.Status().Running == 2 && w1.Status().Running == 2 })

	run := func(user, args string) (code int, errs string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, failure := natstest.Buffer{}, ender{end: cancel}
		url := strings.Replace(b.Server.URL(), "nats://", "nats://"+user+":secret@", 1)
		code = run(ctx, append(strings.Fields(args), "-timeout", "1m", "-server", url), &out, &failure)
		return code, failure.String()
	}
	commands := map[string][]string{
		"inspector": {"inspect orders", "workers orders", "partitions orders", "groups"},
		"operator":  {"drain orders pod-0", "undrain orders pod-0", "evict orders pod-1"},
	}
	for user, all := range commands {
		for _, args := range all {
			code, errs := run(user, args)
			require.Equal(t, exitDone, code, "%s: %s", args, errs)
			require.Empty(t, errs, args)
		}
	}
	require.Len(t, without, 12)
	for user, subject := range without {
		kind, _, _ := strings.Cut(user, "-")
		refused := slices.ContainsFunc(commands[kind], func(args string) bool {
			code, errs := run(user, args)
			return code != exitDone && strings.Contains(strings.ToLower(errs), "permission")
		})
		require.True(t, refused, "%s is allowed in vain", subject)
	}
}
