package chaos

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proc is another process of this binary, seen by the parent.
type proc struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	errs  bytes.Buffer  // what it prints on standard error; read it after gone
	gone  chan struct{} // closed when it has ended and everything it said was read
	ended error         // how; set before gone is closed
}

// launch runs the test binary in a role. said is called with each line it prints, by one goroutine. The process is killed when the test ends,
// at the latest.
func launch(t *testing.T, role string, said func(p *proc, line []byte), env ...string) *proc {
	t.Helper()
	p := &proc{t: t, gone: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(append(os.Environ(), envRole+"="+role), env...)
	p.cmd.Stderr = &p.errs
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		lines := bufio.NewReaderSize(out, 64<<10)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				break // what is left is half a line of a process that was killed
			}
			said(p, line[:len(line)-1])
		}
		p.ended = p.cmd.Wait()
		close(p.gone)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.errs.Len() > 0 {
			t.Logf("process %d: %s", p.pid(), p.errs.String())
		}
	})
	return p
}

func (p *proc) pid() int { return p.cmd.Process.Pid }

// tell sends a line. A frozen process reads it when it is thawed.
func (p *proc) tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, line+"\n")
	require.NoError(p.t, err)
}

// kill is kill -9, and waits for the end.
func (p *proc) kill() {
	_ = p.cmd.Process.Kill() // fails when it has ended already
	<-p.gone
}

// stop makes the process end in good order.
func (p *proc) stop() {
	p.t.Helper()
	require.NoError(p.t, p.stdin.Close())
	select {
	case <-p.gone:
		require.NoError(p.t, p.ended, "%s", p.errs.String())
	case <-time.After(patience):
		p.t.Fatalf("process %d does not stop", p.pid())
	}
}
