package main

import (
	"errors"
	"os"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startNATS starts a server in this process and connects to it. end ends both.
func startNATS() (js jetstream.JetStream, end func(), err error) {
	dir, err := os.MkdirTemp("", "replay-")
	if err != nil {
		return nil, nil, err
	}
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.Start()
	stop := func() {
		s.Shutdown()
		s.WaitForShutdown()
		os.RemoveAll(dir)
	}
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		stop()
		return nil, nil, err
	}
	end = func() {
		conn.Close()
		stop()
	}
	if js, err = jetstream.New(conn); err != nil {
		end()
		return nil, nil, err
	}
	return js, end, nil
}
