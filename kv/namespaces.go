package kv

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Namespaces returns, sorted, the namespaces whose two buckets exist, as their streams' metadata says.
func Namespaces(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	ctx, cancel := withDeadline(ctx, js)
	defer cancel()
	streams := js.ListStreams(ctx)
	control, heartbeat := map[string]bool{}, map[string]bool{}
	for info := range streams.Info() {
		ns := info.Config.Metadata[metadataKey]
		switch info.Config.Name {
		case streamName(ControlBucket(ns)):
			control[ns] = ns != ""
		case streamName(HeartbeatBucket(ns)):
			heartbeat[ns] = ns != ""
		}
	}
	if err := streams.Err(); err != nil {
		return nil, apiError(js, "list streams", "STREAM.LIST", err)
	}
	var names []string
	for ns := range control {
		if control[ns] && heartbeat[ns] {
			names = append(names, ns)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Layout returns how the bucket's stream is stored, and how often, as last seen.
func (s *Store) Layout() (storage jetstream.StorageType, replicas int) {
	c := s.stream.CachedInfo().Config
	return c.Storage, c.Replicas
}
