package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/partigo/parti/types"
)

const (
	// maxConsumers lifts the server's default of 1,000 consumers a stream, which a listing per worker could reach.
	maxConsumers = 10_000
	minMarkerTTL = 10 * time.Minute

	metadataKey    = "parti"               // the namespace
	metadataTTLKey = "parti.heartbeat_ttl" // on the heartbeat bucket: how long its values live
)

// BucketConfig says how the two buckets of a namespace are made.
type BucketConfig struct {
	Namespace    string
	HeartbeatTTL time.Duration
	Replicas     int
	Storage      jetstream.StorageType
	Logger       *slog.Logger
}

// Buckets are the two buckets of a namespace.
type Buckets struct {
	Control   *Store
	Heartbeat *Store
}

// ControlBucket is the name of the bucket that has a namespace's commits and payloads, its leader and its orders.
func ControlBucket(namespace string) string { return namespace + "-control" }

// HeartbeatBucket is the name of the bucket that has a namespace's heartbeats.
func HeartbeatBucket(namespace string) string { return namespace + "-heartbeat" }

// MarkerTTL is how long markers of expiries and deletes live: long enough that everybody who was away for a few heartbeat
// lives still finds them.
func MarkerTTL(heartbeatTTL time.Duration) time.Duration {
	return max(minMarkerTTL, 20*heartbeatTTL).Round(time.Second)
}

// EnsureBuckets creates the buckets that are missing and verifies those that exist. What can be put right without harm is,
// and logged; anything else is an error that wraps types.ErrForeignBucket. Nothing is written before the server and the
// user's permissions were found to be fit (types.ErrServerTooOld, types.ErrJetStreamDisabled, types.ErrPermission,
// types.ErrNoServer). It may be called again at any time, e.g. when a bucket has vanished.
func EnsureBuckets(ctx context.Context, js jetstream.JetStream, cfg BucketConfig) (Buckets, error) {
	if d := cfg.HeartbeatTTL; d < time.Second || d%time.Second != 0 {
		return Buckets{}, fmt.Errorf("%w: HeartbeatTTL %v: use whole seconds, e.g. 15s", types.ErrInvalidConfig, d)
	}
	ctx, cancel := withDeadline(ctx, js)
	defer cancel()
	switch nc := js.Conn(); {
	case nc.IsClosed():
		return Buckets{}, types.ErrConnectionClosed
	case !nc.IsConnected():
		return Buckets{}, fmt.Errorf("%w: not connected yet, the connection is %v", types.ErrNoServer, nc.Status())
	}
	if err := CheckVersion(js.Conn().ConnectedServerVersion()); err != nil {
		return Buckets{}, err
	}
	if err := CheckAccess(ctx, js, cfg.Namespace); err != nil {
		return Buckets{}, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	beats := heartbeatConfig(cfg)
	// Looked at before the other one is touched: who is refused, e.g. for another TTL than the group's, has changed nothing.
	if s, err := js.Stream(ctx, beats.Name); err == nil {
		if err := foreign(HeartbeatBucket(cfg.Namespace), beats, s.CachedInfo().Config, cfg); err != nil {
			return Buckets{}, err
		}
	}
	control, err := ensure(ctx, js, streamConfig(cfg, ControlBucket(cfg.Namespace), 0), cfg)
	if err != nil {
		return Buckets{}, err
	}
	heartbeat, err := ensure(ctx, js, beats, cfg)
	if err != nil {
		return Buckets{}, err
	}
	heartbeat.valueTTL = cfg.HeartbeatTTL
	return Buckets{Control: control, Heartbeat: heartbeat}, nil
}

// OpenBuckets opens existing buckets of the namespace; it creates, changes and checks no setting. ErrUnavailable means that at
// least one does not exist, types.ErrForeignBucket that one is somebody else's.
func OpenBuckets(ctx context.Context, js jetstream.JetStream, namespace string) (Buckets, error) {
	heartbeat, err := openOwned(ctx, js, namespace, HeartbeatBucket(namespace))
	if err != nil {
		return Buckets{}, err
	}
	control, err := openOwned(ctx, js, namespace, ControlBucket(namespace))
	if err != nil {
		return Buckets{}, err
	}
	if heartbeat.valueTTL = heartbeat.HeartbeatTTL(); heartbeat.valueTTL == 0 {
		return Buckets{}, fmt.Errorf("%w: %q: its metadata does not say how long its keys live", types.ErrForeignBucket, heartbeat.bucket)
	}
	heartbeat.markerTTL = MarkerTTL(heartbeat.valueTTL)
	control.markerTTL = heartbeat.markerTTL
	return Buckets{Control: control, Heartbeat: heartbeat}, nil
}

func openOwned(ctx context.Context, js jetstream.JetStream, namespace, bucket string) (*Store, error) {
	s, err := OpenStore(ctx, js, bucket, minMarkerTTL)
	if err != nil {
		return nil, err
	}
	if owner := s.stream.CachedInfo().Config.Metadata[metadataKey]; owner != namespace {
		return nil, fmt.Errorf("%w: %q: its metadata says parti=%q, expected %q", types.ErrForeignBucket, bucket, owner, namespace)
	}
	return s, nil
}

// HeartbeatTTL returns how long a value of the heartbeat bucket lives, 0 for other buckets.
func (s *Store) HeartbeatTTL() time.Duration { return heartbeatTTL(s.stream.CachedInfo().Config) }

func heartbeatTTL(cfg jetstream.StreamConfig) time.Duration {
	d, err := time.ParseDuration(cfg.Metadata[metadataTTLKey])
	if err != nil {
		return 0
	}
	return d
}

// heartbeatConfig makes the values of the heartbeat bucket live for HeartbeatTTL, by a TTL that every write carries. The
// bucket's age could do that too, but then markers would live no longer than the values: the age beats every TTL. So the age
// is that of the markers; besides, it ends what others write without a TTL.
func heartbeatConfig(cfg BucketConfig) jetstream.StreamConfig {
	sc := streamConfig(cfg, HeartbeatBucket(cfg.Namespace), MarkerTTL(cfg.HeartbeatTTL))
	sc.Metadata[metadataTTLKey] = cfg.HeartbeatTTL.String()
	return sc
}

func streamConfig(cfg BucketConfig, bucket string, maxAge time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   streamName(bucket),
		Description:            "partition coordination of " + cfg.Namespace,
		Subjects:               []string{"$KV." + bucket + ".>"},
		Storage:                cfg.Storage,
		Replicas:               cfg.Replicas,
		MaxMsgsPerSubject:      1,
		MaxMsgs:                -1,
		MaxBytes:               -1,
		MaxMsgSize:             -1,
		MaxAge:                 maxAge,
		MaxConsumers:           maxConsumers,
		Discard:                jetstream.DiscardNew,
		Duplicates:             duplicateWindow(maxAge),
		DenyDelete:             true,
		AllowRollup:            true,
		AllowDirect:            true,
		AllowMsgTTL:            true,
		AllowAtomicPublish:     true,
		SubjectDeleteMarkerTTL: MarkerTTL(cfg.HeartbeatTTL),
		Metadata:               map[string]string{metadataKey: cfg.Namespace},
		RePublish: &jetstream.RePublish{
			Source:      "$KV." + bucket + ".*.*",
			Destination: livePrefix(cfg.Namespace) + "{{wildcard(1)}}.{{wildcard(2)}}",
		},
	}
}

// The server's error codes for more than one replica on a server that stands alone, and for subjects that another stream has.
const (
	noCluster     = 10074
	subjectsTaken = 10065
)

// duplicateWindow is the smallest useful one: nothing here is published with a message ID.
func duplicateWindow(maxAge time.Duration) time.Duration {
	if maxAge > 0 {
		return min(maxAge, 2*time.Second)
	}
	return 2 * time.Second
}

func ensure(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, cfg BucketConfig) (*Store, error) {
	bucket := strings.TrimPrefix(want.Name, "KV_")
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another worker was faster
			stream, err = js.Stream(ctx, want.Name)
		}
	}
	switch api := (*jetstream.APIError)(nil); {
	case !errors.As(err, &api):
	case api.ErrorCode == noCluster:
		return nil, fmt.Errorf("%w: Replicas is %d, and the server is not part of a cluster: use 1", types.ErrInvalidConfig, want.Replicas)
	case api.ErrorCode == subjectsTaken:
		return nil, fmt.Errorf("%w: another stream takes subjects that begin with %q; change that one, or choose another namespace: %w",
			types.ErrForeignBucket, "$KV."+bucket, err)
	}
	if err != nil {
		return nil, apiError(js, "create bucket "+bucket, "STREAM.", err)
	}
	have := stream.CachedInfo().Config
	if err := foreign(bucket, want, have, cfg); err != nil {
		return nil, err
	}
	if mended, what := mend(want, have); len(what) > 0 {
		cfg.Logger.Warn("bucket settings put right", "bucket", bucket, "settings", strings.Join(what, ", "))
		if stream, err = js.UpdateStream(ctx, mended); err != nil {
			return nil, fmt.Errorf("%w: %q differs in %s and cannot be put right: %w",
				types.ErrForeignBucket, bucket, strings.Join(what, ", "), apiError(js, "update bucket "+bucket, "STREAM.", err))
		}
	}
	return &Store{js: js, stream: stream, bucket: bucket, markerTTL: MarkerTTL(cfg.HeartbeatTTL)}, nil
}

// foreign reports what makes a bucket unusable: it belongs to somebody else, or holds or ages data in another way.
func foreign(bucket string, want, have jetstream.StreamConfig, cfg BucketConfig) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if owner := have.Metadata[metadataKey]; owner != cfg.Namespace {
		fault("its metadata says parti=%q, expected %q: choose another namespace, or remove the stream %s", owner, cfg.Namespace, want.Name)
	}
	if !slices.Equal(have.Subjects, want.Subjects) {
		fault("its subjects are %q, expected %q", have.Subjects, want.Subjects)
	}
	if h, w := heartbeatTTL(have), heartbeatTTL(want); h != w {
		fault("its keys live %v, this worker has %v: give all workers of the namespace one HeartbeatTTL "+
			"(to change it, stop them all and delete the stream %s)", h, w, want.Name)
	}
	if want.MaxAge == 0 && have.MaxAge != 0 {
		fault("its keys are dropped after %v, they must stay", have.MaxAge)
	}
	if limits := limits(have); limits != "" && have.Discard == jetstream.DiscardOld {
		fault("it is limited to %s and drops its oldest keys for new ones (discard old), among them those of the leader, of the commit or of "+
			"workers that are alive: let it refuse what is new instead (nats stream edit %s --discard new), or take the limits away "+
			"(--max-msgs=-1 --max-bytes=-1)", limits, want.Name)
	}
	if have.Storage != want.Storage {
		fault("its storage is %v, this worker wants %v: storage cannot be changed, use the same setting", have.Storage, want.Storage)
	}
	if have.MaxMsgsPerSubject != 1 {
		fault("it keeps %d values per key, expected 1", have.MaxMsgsPerSubject)
	}
	if have.Mirror != nil || len(have.Sources) > 0 || have.SubjectTransform != nil {
		fault("it mirrors, sources or transforms other streams")
	}
	if have.Retention != jetstream.LimitsPolicy {
		fault("its retention is %v, expected limits", have.Retention)
	}
	if have.Sealed || have.DenyPurge != want.DenyPurge {
		fault("it is sealed, or refuses purges")
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %q: %s", types.ErrForeignBucket, bucket, strings.Join(faults, "; "))
}

// limits describes the limits of a stream on its size, "" where it has none.
func limits(have jetstream.StreamConfig) string {
	var l []string
	if have.MaxMsgs > 0 {
		l = append(l, fmt.Sprintf("%d messages", have.MaxMsgs))
	}
	if have.MaxBytes > 0 {
		l = append(l, fmt.Sprintf("%d bytes", have.MaxBytes))
	}
	return strings.Join(l, " and ")
}

// mend returns have with the settings that can be put right without losing data, and their names. Replicas are left
// alone: operators change them on purpose.
func mend(want, have jetstream.StreamConfig) (jetstream.StreamConfig, []string) {
	var what []string
	set := func(name string, differs bool, apply func()) {
		if differs {
			what = append(what, name)
			apply()
		}
	}
	set("AllowMsgTTL", !have.AllowMsgTTL, func() { have.AllowMsgTTL = true })
	set("AllowAtomicPublish", !have.AllowAtomicPublish, func() { have.AllowAtomicPublish = true })
	set("AllowRollup", !have.AllowRollup, func() { have.AllowRollup = true })
	set("AllowDirect", !have.AllowDirect, func() { have.AllowDirect = true })
	set("MaxAge", have.MaxAge != want.MaxAge, func() { have.MaxAge = want.MaxAge })
	set("SubjectDeleteMarkerTTL", have.SubjectDeleteMarkerTTL < want.SubjectDeleteMarkerTTL,
		func() { have.SubjectDeleteMarkerTTL = want.SubjectDeleteMarkerTTL })
	set("MaxConsumers", have.MaxConsumers < want.MaxConsumers, func() { have.MaxConsumers = want.MaxConsumers })
	set("Discard", have.Discard != want.Discard, func() { have.Discard = want.Discard })                 // without limits it has dropped nothing
	set("DiscardNewPerSubject", have.DiscardNewPerSubject, func() { have.DiscardNewPerSubject = false }) // no key could be written twice
	set("NoAck", have.NoAck, func() { have.NoAck = false })                                              // no write would be answered
	set("RePublish", have.RePublish == nil || *have.RePublish != *want.RePublish, func() { have.RePublish = want.RePublish })
	return have, what
}

// apiError gives the errors of the JetStream API names that say what to do. The call is what the API's subject ends with.
func apiError(js jetstream.JetStream, op, call string, err error) error {
	err = PermissionError(js.Conn(), op, err, APIPrefix(js)+call)
	var api *jetstream.APIError
	switch {
	case errors.Is(err, types.ErrPermission):
		return err
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: %s: %w: enable JetStream on the server and for the account", types.ErrJetStreamDisabled, op, err)
	case IsTimeout(err):
		return fmt.Errorf("%w: %s: %w", types.ErrNoServer, op, err)
	case errors.As(err, &api) && api.Code == 403:
		return fmt.Errorf("%w: %s: %w", types.ErrPermission, op, err)
	}
	return fmt.Errorf("kv: %s: %w", op, err)
}
