package kv

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/types"
)

// The oldest server that has atomic batches.
const wantMajor, wantMinor = 2, 12

// CheckVersion refuses a server's version that lacks atomic batches. One that cannot be read passes.
func CheckVersion(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return nil
	}
	if major > wantMajor || major == wantMajor && minor >= wantMinor {
		return nil
	}
	return fmt.Errorf("%w: it is %s, at least %d.%d is needed (atomic batches, per-message TTL)",
		types.ErrServerTooOld, version, wantMajor, wantMinor)
}

// violation finds the subject in the server's words. There are several forms; all quote the subject first.
var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription)[a-z ]* "([^"]+)"`)

// PermissionError explains an error by which a wait ended without an answer. The server reports a missing permission apart
// from the request, as the connection's last error; the request itself just gets no answer. If that report is about one of
// the subjects (or what begins with one, or the inbox that answers come to), the result wraps types.ErrPermission, names the
// subject, and wraps err too: a write whose outcome was unknown stays unknown, since the report may be older. Any other err
// is returned as it is.
func PermissionError(nc *nats.Conn, op string, err error, subjects ...string) error {
	if !IsTimeout(err) || errors.Is(err, types.ErrPermission) {
		return err
	}
	kind, subject, ok := denied(nc, append([]string{inboxPrefix(nc)}, subjects...)...)
	if !ok {
		return err
	}
	return fmt.Errorf("%w: %s: the user may not %s %q: %w", types.ErrPermission, op, kind, subject, err)
}

// denied returns what the connection was told last, if that is a missing permission for what begins with a prefix.
func denied(nc *nats.Conn, prefixes ...string) (kind, subject string, ok bool) {
	last := nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) {
		return "", "", false
	}
	m := violation.FindStringSubmatch(last.Error())
	if m == nil {
		return "", "", false
	}
	for _, p := range prefixes {
		if strings.HasPrefix(m[2], p) {
			if strings.EqualFold(m[1], "publish") {
				return "publish to", m[2], true
			}
			return "subscribe to", m[2], true
		}
	}
	return "", "", false
}

func inboxPrefix(nc *nats.Conn) string {
	if p := nc.Opts.InboxPrefix; p != "" {
		return p + "."
	}
	return nats.InboxPrefix
}

// CheckSubscribed waits until the server has taken the subscription or refused it; a refusal (types.ErrPermission) does not
// show otherwise.
func CheckSubscribed(ctx context.Context, nc *nats.Conn, sub *nats.Subscription) error {
	if err := flush(ctx, nc, defaultTimeout); err != nil {
		return fmt.Errorf("%w: subscribe to %q: %w", types.ErrNoServer, sub.Subject, err)
	}
	if kind, subject, ok := denied(nc, sub.Subject); ok && subject == sub.Subject && kind == "subscribe to" {
		return fmt.Errorf("%w: the user may not subscribe to %q", types.ErrPermission, sub.Subject)
	}
	return nil
}

// CheckAccess asks the server, without writing anything, whether the user may do what a worker of the namespace does. The
// error wraps types.ErrPermission and names every subject that is missing, types.ErrNoServer if nobody answers. The buckets need
// not exist. Permissions to create and update them are needed by EnsureBuckets only, and not looked at here.
//
// A user needs: publish on $KV.<bucket>.> and, with API = $JS.API or what it is in the domain, API.STREAM.INFO.<stream>,
// API.DIRECT.GET.<stream>.>, API.CONSUMER.{CREATE,INFO,DELETE,MSG.NEXT}.<stream>.> for both buckets (stream KV_<bucket>);
// subscribe on _PARTI.<namespace>.live.> and on _INBOX.>.
func CheckAccess(ctx context.Context, js jetstream.JetStream, namespace string) error {
	ctx, cancel := withDeadline(ctx, js)
	defer cancel()
	var missing []string
	before := js.Conn().LastError()
	check := access{js: js, namespace: namespace}
	for _, step := range check.steps() {
		if err := step.ask(); err != nil {
			return err
		}
	}
	switch err := flush(ctx, js.Conn(), usual(js)); {
	case err != nil:
		return fmt.Errorf("%w: %w", types.ErrNoServer, err)
	case js.Conn().LastError() == before:
		return nil // the usual case, in one round trip
	}
	// Something was refused, perhaps of somebody else's on this connection, which keeps only its last error: ask one by one.
	for _, step := range check.steps() {
		if err := step.ask(); err != nil {
			return err
		}
		if err := flush(ctx, js.Conn(), usual(js)); err != nil {
			return fmt.Errorf("%w: %w", types.ErrNoServer, err)
		}
		if kind, subject, ok := denied(js.Conn(), step.subject); ok && subject == step.subject {
			missing = append(missing, kind+" "+subject)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the user may not %s", types.ErrPermission, strings.Join(missing, ", nor "))
}

// access is what a worker of the namespace asks of the server.
type access struct {
	js        jetstream.JetStream
	namespace string
}

// step is one permission: ask makes use of it, and the server objects if it is missing.
type step struct {
	subject string
	ask     func() error
}

func (a access) steps() (steps []step) {
	nc := a.js.Conn()
	for _, subject := range []string{nc.NewRespInbox(), LiveSubject(a.namespace, "*.*")} {
		steps = append(steps, step{subject, func() error {
			sub, err := nc.ChanSubscribe(subject, make(chan *nats.Msg, 1)) // a synchronous one would make room for 64k messages
			if err == nil {
				err = sub.Unsubscribe()
			}
			if err != nil && !errors.Is(err, nats.ErrBadSubscription) { // which says that it was refused meanwhile
				return fmt.Errorf("%w: subscribe to %q: %w", types.ErrNoServer, subject, err)
			}
			return nil
		}})
	}
	for _, bucket := range []string{ControlBucket(a.namespace), HeartbeatBucket(a.namespace)} {
		for _, m := range probes(a.js, bucket) {
			steps = append(steps, step{m.Subject, func() error {
				if err := nc.PublishMsg(m); err != nil {
					return fmt.Errorf("%w: publish to %q: %w", types.ErrNoServer, m.Subject, err)
				}
				return nil
			}})
		}
	}
	return steps
}

// probes returns messages that nobody answers and that change nothing, on the subjects that a worker publishes to.
func probes(js jetstream.JetStream, bucket string) []*nats.Msg {
	const probe = "parti-permission-probe"
	s := &Store{js: js, bucket: bucket}
	// No key ever is at this revision.
	never := nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"9223372036854775807"}}
	msgs := []*nats.Msg{{Subject: s.publishSubject(probe), Header: never}}
	for _, call := range []string{
		"STREAM.INFO." + s.Stream(),
		"DIRECT.GET." + s.Stream() + "." + s.subject(probe),
		"CONSUMER.CREATE." + s.Stream() + "." + probe + "." + s.subject(probe),
		"CONSUMER.INFO." + s.Stream() + "." + probe,
		"CONSUMER.MSG.NEXT." + s.Stream() + "." + probe,
		"CONSUMER.DELETE." + s.Stream() + "." + probe,
	} {
		msgs = append(msgs, &nats.Msg{Subject: APIPrefix(js) + call})
	}
	return msgs
}

// flush waits until the server has seen all that was sent, within ctx or the usual time.
func flush(ctx context.Context, nc *nats.Conn, usual time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, usual)
	defer cancel()
	return nc.FlushWithContext(ctx)
}

const (
	defaultAPIPrefix = "$JS.API."
	// defaultTimeout is what the clients use where nothing is set.
	defaultTimeout = 5 * time.Second
)

// APIPrefix is what the subjects of the JetStream API begin with in this context's domain.
func APIPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return defaultAPIPrefix
}

// withDeadline bounds ctx as the jetstream package does, where it has no deadline of its own.
func withDeadline(ctx context.Context, js jetstream.JetStream) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, usual(js))
}

// usual is how long the user of js is willing to wait for an answer.
func usual(js jetstream.JetStream) time.Duration {
	if d := js.Options().DefaultTimeout; d > 0 {
		return d
	}
	return defaultTimeout
}
