package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// The majority elects a new leader and goes on; the isolated leader believes in itself, but cannot write.
func TestClusterIsolatesStreamLeader(t *testing.T) {
	start := time.Now()
	c := NewCluster(t, 3)
	t.Logf("ready after %v", time.Since(start).Round(time.Millisecond))
	kv := create(t, c, c.Connect("creator"))
	c.WaitFor(clusterTimeout, "the first write", func() bool { return put(t, kv, "0") })

	old := c.StreamLeader("KV_b")
	inside := open(t, c, c.Connect("inside", old))
	outside := open(t, c, c.Connect("outside", (old+1)%3))
	c.Isolate(old)
	require.False(t, put(t, inside, "inside"))
	cut := time.Now()
	c.WaitFor(clusterTimeout, "a write on the side of the majority", func() bool { return put(t, outside, "outside") })
	t.Logf("writes resumed %v after the cut, leaders are %v, was %d", time.Since(cut), c.StreamLeaders("KV_b"), old)

	c.Heal(old)
	healed := time.Now()
	c.WaitFor(clusterTimeout, "a write through the server that was isolated", func() bool { return put(t, inside, "healed") })
	t.Logf("healed after %v", time.Since(healed))
	c.StreamLeader("KV_b") // there is one again, not two
}

// A client that may use all servers moves on when its server stops, and the stopped one catches up later.
func TestClusterStopServer(t *testing.T) {
	c := NewCluster(t, 3)
	kv := create(t, c, c.Connect("a"))
	c.StopServer(0)
	stopped := time.Now()
	c.WaitFor(clusterTimeout, "a write without the server", func() bool { return put(t, kv, "v") })
	t.Logf("writes resumed %v after the stop", time.Since(stopped))
	c.StartServer(0)
	c.WaitReady()
	js := c.Connect("b", 0).JS()
	c.WaitFor(clusterTimeout, "the value through the restarted server", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		kv, err := js.KeyValue(ctx, "b")
		if err != nil {
			return false
		}
		e, err := kv.Get(ctx, "k")
		return err == nil && string(e.Value()) == "v"
	})
}

func create(t *testing.T, cluster *Cluster, c *Client) (kv jetstream.KeyValue) {
	t.Helper()
	cluster.Repeat(func(ctx context.Context) (err error) {
		kv, err = c.JS().CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b", Replicas: 3})
		return err
	})
	return kv
}

func open(t *testing.T, cluster *Cluster, c *Client) (kv jetstream.KeyValue) {
	t.Helper()
	cluster.Repeat(func(ctx context.Context) (err error) {
		kv, err = c.JS().KeyValue(ctx, "b")
		return err
	})
	return kv
}

// put tells whether a write was acknowledged. It can be repeated, unlike an update that expects a revision.
func put(t *testing.T, kv jetstream.KeyValue, value string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := kv.Put(ctx, "k", []byte(value))
	return err == nil
}
