package grouptest

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/partigo/parti/internal/natstest"
)

// PlainWorker is a worker that does not speak the commit protocol, as somebody would write it in another language: it writes the
// time under its heartbeat key, reads its alias, and runs what that lists. It uses nothing of the library.
type PlainWorker struct {
	ID     string
	Client *natstest.Client

	g       *Group
	ttl     time.Duration // of its heartbeats; 0: it writes none, like a release that relied on the bucket's age
	patient time.Duration // how long it waits with a partition that an earlier owner may be ending
	stop    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	version int64
	runs    map[string]oracleRun
	aliases int
}

// plainAlias is what the worker reads of an alias.
type plainAlias struct {
	Version    int64 `json:"version"`
	Partitions []struct {
		ID           string `json:"id"`
		Epoch        int64  `json:"epoch"`
		EarlierOwner bool   `json:"earlier_owner"`
	} `json:"partitions"`
}

// StartPlain starts a plain worker that heartbeats three times in each ttl. Where keyTTL is false its keys do not expire by themselves.
func (g *Group) StartPlain(id string, ttl time.Duration, keyTTL bool) *PlainWorker {
	g.T.Helper()
	w := &PlainWorker{
		ID: id, Client: g.connect(id), g: g, ttl: ttl, patient: ttl,
		stop: make(chan struct{}), done: make(chan struct{}), runs: map[string]oracleRun{},
	}
	live := make(chan *nats.Msg, 64)
	sub, err := w.Client.Conn().ChanSubscribe("_PARTI."+Namespace+".live.assignment."+id, live)
	if err != nil {
		g.T.Fatal(err)
	}
	go w.run(sub, live, keyTTL)
	g.mu.Lock()
	g.plain = append(g.plain, w)
	g.mu.Unlock()
	return w
}

func (w *PlainWorker) run(sub *nats.Subscription, live <-chan *nats.Msg, keyTTL bool) {
	defer close(w.done)
	defer func() { _ = sub.Unsubscribe() }()
	beat := time.NewTicker(w.ttl / 3)
	defer beat.Stop()
	w.beat(keyTTL)
	w.read()
	for {
		select {
		case m := <-live:
			w.follow(m.Data)
		case <-beat.C:
			w.beat(keyTTL)
			w.read()
		case <-w.stop:
			w.follow(nil)
			return
		}
	}
}

func (w *PlainWorker) beat(keyTTL bool) {
	m := nats.NewMsg("$KV." + Namespace + "-heartbeat.heartbeat." + w.ID)
	m.Data = []byte(time.Now().UTC().Format(time.RFC3339Nano))
	if keyTTL {
		m.Header.Set("Nats-TTL", w.ttl.String())
	}
	_ = w.Client.Conn().PublishMsg(m)
}

func (w *PlainWorker) read() {
	reply, err := w.Client.Conn().Request("$JS.API.DIRECT.GET.KV_"+Namespace+"-control.$KV."+Namespace+"-control.assignment."+w.ID, nil, time.Second)
	if err != nil {
		return
	}
	switch {
	case reply.Header.Get("Status") == "404", reply.Header.Get("KV-Operation") != "":
		w.follow(nil)
	default:
		w.follow(reply.Data)
	}
}

// follow runs what the alias lists, and ends everything else; no alias lists nothing.
func (w *PlainWorker) follow(data []byte) {
	var a plainAlias
	if len(data) > 0 && (json.Unmarshal(data, &a) != nil || a.Version < w.applied()) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Version > w.version {
		w.version = a.Version
		w.aliases++
	}
	listed := map[string]oracleRun{}
	wait := map[string]bool{}
	for _, p := range a.Partitions {
		listed[p.ID] = oracleRun{p.ID, w.ID, p.Epoch}
		wait[p.ID] = p.EarlierOwner
	}
	for id, run := range w.runs {
		if listed[id] != run {
			w.g.Oracle.End(id, w.ID, run.epoch)
			delete(w.runs, id)
		}
	}
	for id, run := range listed {
		if _, runs := w.runs[id]; runs {
			continue
		}
		if wait[id] {
			time.AfterFunc(w.patient, func() { w.begin(run, a.Version) })
			continue
		}
		w.runs[id] = run
		w.g.Oracle.Start(id, w.ID, run.epoch)
	}
}

// begin starts what had to wait, if nothing has changed since.
func (w *PlainWorker) begin(run oracleRun, version int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, runs := w.runs[run.partition]; runs || w.version != version {
		return
	}
	select {
	case <-w.stop:
		return
	default:
	}
	w.runs[run.partition] = run
	w.g.Oracle.Start(run.partition, w.ID, run.epoch)
}

func (w *PlainWorker) applied() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}

// Running is how many partitions it runs.
func (w *PlainWorker) Running() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}

// Version is that of the alias that it followed last.
func (w *PlainWorker) Version() int64 { return w.applied() }

// Kill ends the worker without a word; what it ran has ended.
func (w *PlainWorker) Kill() {
	select {
	case <-w.stop:
		return
	default:
	}
	close(w.stop)
	<-w.done
	w.Client.Kill()
}
