// Package plainjs runs the plain worker of examples/plain-worker-js beside a worker of the library, on a real server.
package plainjs

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/grouptest"
	"github.com/stretchr/testify/require"
)

// node installs what the example needs, in a directory of its own, and returns that. Without Node the test is skipped, but not in CI.
func node(t *testing.T) (dir string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed, and in CI this example must run: %v", program, err)
			}
			t.Skipf("%s is not installed: the plain worker in JavaScript is not run", program)
		}
	}
	dir = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "worker.js"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "examples", "plain-worker-js", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for tries := 3; ; tries-- { // the registry may not answer for once
		install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
		install.Dir = dir
		out, err := install.CombinedOutput()
		if err == nil {
			return dir
		}
		t.Logf("npm ci: %s", out)
		require.Greater(t, tries, 1, "npm ci: %v", err)
	}
}

// process is a running plain worker.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	runs map[string]int64
	log  strings.Builder
}

func startWorker(t *testing.T, dir, url, id string) *process {
	t.Helper()
	p := &process{cmd: exec.Command("node", "worker.js"), done: make(chan struct{}), runs: map[string]int64{}}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "NATS_URL="+url, "NAMESPACE=js", "WORKER_ID="+id, "HEARTBEAT_TTL=3")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.note(lines.Text())
		}
		_ = p.cmd.Wait() // killed or asked to end
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

func (p *process) note(line string) {
	var e struct {
		Event, ID string
		Epoch     int64
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.WriteString(line + "\n")
	if json.Unmarshal([]byte(line), &e) != nil {
		return
	}
	if e.Event == "start" {
		p.runs[e.ID] = e.Epoch
	} else {
		delete(p.runs, e.ID)
	}
}

func (p *process) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

// Two plain workers and one of the library share the partitions; what a killed one had goes to the others when its key has expired, and
// what one had that said goodbye goes at once.
func TestPlainWorkerTakesPart(t *testing.T) {
	dir := node(t)
	env := natstest.Single(t, natstest.WithTCP())
	join := func(name string) *parti.Manager {
		m, err := parti.NewManager(env.Connect(name).JS(), source.Static(grouptest.Numbered(12)...), strategy.Sticky(),
			parti.WithNamespace("js"), parti.WithStartTimeout(time.Minute), parti.WithStorage(jetstream.MemoryStorage), parti.WithWorkerID(name),
			parti.WithHeartbeat(time.Second, 3*time.Second), parti.WithLeaderLease(3*time.Second), parti.WithHandoffTimeout(4*time.Second),
			parti.WithWindows(2*time.Second, time.Second, 500*time.Millisecond), parti.WithCooldown(500*time.Millisecond),
			parti.WithHandler(func(ctx context.Context, _ parti.Ownership) error { <-ctx.Done(); return nil }))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, m.Start(ctx))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := m.Stop(ctx); !grouptest.Unsaid(err) {
				require.NoError(t, err)
			}
		})
		return m
	}
	m := join("go-1")
	a, b := startWorker(t, dir, env.Server.URL(), "js-1"), startWorker(t, dir, env.Server.URL(), "js-2")
	env.WaitFor(2*time.Minute, "a third each", func() bool { return a.running() == 4 && b.running() == 4 && m.Status().Running == 4 })

	require.NoError(t, b.cmd.Process.Kill())
	env.WaitFor(2*time.Minute, "the dead worker is replaced", func() bool { return a.running() == 6 && m.Status().Running == 6 })

	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	began := time.Now()
	env.WaitFor(2*time.Minute, "the one that left is replaced", func() bool { return m.Status().Running == 12 })
	t.Logf("everything runs %v after the goodbye", time.Since(began))
	<-a.done
}
