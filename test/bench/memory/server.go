package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/source"
	"github.com/partigo/parti/strategy"
	"github.com/partigo/parti/test/bench/rig"
)

// label is what partitions ask for; the leader does not carry it, so it leads and owns nothing.
const label = "work"

// serveEnv makes a process of this program the server: its value is the number of partitions and the timing.
const serveEnv = "PARTI_BENCH_MEMORY_SERVER"

// serveIfAsked runs the server and the leader if this process was started for that, and ends it then.
func serveIfAsked() {
	what := os.Getenv(serveEnv)
	if what == "" {
		return
	}
	if err := serve(what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve prints the server's address when the leader leads, and ends when its standard input does.
func serve(what string) error {
	count, timings, _ := strings.Cut(what, " ")
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	t, err := rig.ParseTimings(timings)
	if err != nil {
		return err
	}
	server, err := natstest.NewServer(natstest.WithTCP())
	if err != nil {
		return err
	}
	defer server.Close()
	ps := rig.Partitions(n)
	for i := range ps {
		ps[i].Label = label
	}
	g, err := rig.NewGroup(rig.Setup{
		URL: server.URL(), Passive: true, Source: source.Static(ps...), Strategy: strategy.Sticky(),
		Options: append(t[0].Options(), append(rig.Prompt(100*time.Millisecond), parti.WithWorkerID("leader"))...),
	})
	if err != nil {
		return err
	}
	defer g.Close()
	if _, err := g.Start(1, 0); err != nil {
		return err
	}
	if _, err := g.Leader(); err != nil {
		return err
	}
	if err := rig.Wait(rig.Limit, "the first commit", func() bool { return g.Commits() > 0 }); err != nil {
		return err
	}
	fmt.Println(server.URL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startServer starts the server's process.
func startServer(partitions int, t rig.Timing) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %v", serveEnv, partitions, t))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait() // an error of its own is on stderr
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, errors.Join(errors.New("the server's process does not start"), err)
	}
	return strings.TrimSpace(line), stop, nil
}
