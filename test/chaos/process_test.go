package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what takes a second on an idle machine.
const patience = 30 * time.Second

// run is one run of a partition, as its worker process reports it.
type run struct {
	partition string
	epoch     int64
}

// process is a worker process, seen by the parent.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	errs  bytes.Buffer  // what it prints on standard error; read it after gone
	gone  chan struct{} // closed when it has ended and everything it said was read
	ended error         // how; set before gone is closed

	mu      sync.Mutex // guards what follows
	id      string
	events  []event
	running map[run]bool
	changed chan struct{}
}

// startProcess runs the test binary as a worker. It is killed when the test ends, at the latest.
func startProcess(t *testing.T, url, id string) *process {
	t.Helper()
	p := &process{t: t, gone: make(chan struct{}), running: map[run]bool{}, changed: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), envURL+"="+url, envID+"="+id)
	p.cmd.Stderr = &p.errs
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go p.read(out)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.errs.Len() > 0 {
			t.Logf("process %d: %s", p.cmd.Process.Pid, p.errs.String())
		}
	})
	return p
}

// start starts a worker process and waits until it takes part.
func start(t *testing.T, w *witness, id string) *process {
	t.Helper()
	p := startProcess(t, w.env.Server.URL(), id)
	p.wait(patience, "it joins", func() bool { return p.id != "" })
	return p
}

func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			p.t.Errorf("process %d said %q", p.cmd.Process.Pid, lines.Text())
			continue
		}
		p.mu.Lock()
		p.note(e)
		p.mu.Unlock()
	}
	p.ended = p.cmd.Wait()
	close(p.gone)
}

// note keeps what the process said. Held: mu.
func (p *process) note(e event) {
	r := run{e.Partition, e.Epoch}
	switch e.What {
	case joined:
		p.id = e.Text
	case began:
		p.running[r] = true
	case ended:
		delete(p.running, r)
	}
	p.events = append(p.events, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait waits until cond holds of what the process has said; it is called with the lock held.
func (p *process) wait(d time.Duration, what string, cond func() bool) {
	p.t.Helper()
	if !p.waitFor(d, cond) {
		p.mu.Lock()
		last := p.events[max(0, len(p.events)-10):]
		p.mu.Unlock()
		p.t.Fatalf("process %d: waited %v in vain for: %s; it said last: %+v", p.cmd.Process.Pid, d, what, last)
	}
}

func (p *process) waitFor(d time.Duration, cond func() bool) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		p.mu.Lock()
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-limit.C:
			return false
		}
	}
}

// tell sends a line. A frozen process reads it when it is thawed.
func (p *process) tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, line+"\n")
	require.NoError(p.t, err)
}

// since returns what the process has said after the first n events.
func (p *process) since(n int) []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events[n:])
}

func (p *process) said() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events)
}

// workerID is the one it joined under; empty before.
func (p *process) workerID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails when it has ended already
	<-p.gone
}

// stop makes the process stop its Manager and end in good order.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.stdin.Close())
	select {
	case <-p.gone:
		require.NoError(p.t, p.ended, "%s", p.errs.String())
	case <-time.After(30 * time.Second):
		p.t.Fatalf("process %d does not stop", p.cmd.Process.Pid)
	}
}
