package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/partigo/parti/consumer"
	"github.com/prometheus/client_golang/prometheus"
)

// Consumer collects what one consumer.Reader measures, see consumer.WithMetrics. Its methods may be called from any goroutine; they do not
// block.
//
// Gauges of a partition have the label partition, and are there while this process owns the partition.
type Consumer struct {
	// methods that are added to the interface later are not measured until this package knows them
	consumer.NopMetrics
	set set

	mu    sync.Mutex // guards owned, and orders reports of a partition with its end
	owned map[int]bool

	epoch, lag, messages, bytes vec
	fetched, handled, committed vec
	expired, poisoned, restarts vec
}

var (
	_ consumer.Metrics     = (*Consumer)(nil)
	_ prometheus.Collector = (*Consumer)(nil)
)

// NewConsumer returns a collector for a Reader of that group.
func NewConsumer(group string) *Consumer {
	c := &Consumer{set: set{labels: prometheus.Labels{"group": group}}, owned: map[int]bool{}}
	s := &c.set
	c.epoch = s.gauge("parti_consumer_partition_epoch", "Fencing token of a partition that this process owns.", "partition")
	c.lag = s.gauge("parti_consumer_lag_messages", "Messages of a partition that are known to be unprocessed.", "partition")
	c.messages = s.gauge("parti_consumer_buffered_messages", "Messages of a partition held in memory.", "partition")
	c.bytes = s.gauge("parti_consumer_buffered_bytes", "Bytes held in memory for a partition.", "partition")
	c.fetched = s.counter("parti_consumer_fetched_messages_total", "Messages handed out by Fetch, All and Process, each once, however often it is tried.")
	c.handled = s.seconds("parti_consumer_handler_duration_seconds", "Time that calls of the handler took.", "result")
	c.committed = s.seconds("parti_consumer_commit_duration_seconds", "Time that attempts to store an offset took.", "result")
	c.expired = s.counter("parti_consumer_expired_sequences_total", "Stream sequences removed before they were read; an upper bound of the messages.")
	c.poisoned = s.counter("parti_consumer_poison_messages_total", "Messages that could not be processed, by what was done about them.", "action")
	c.restarts = s.counter("parti_consumer_reading_restarts_total", "Server-side consumers that were made anew.")
	return c
}

// Describe implements prometheus.Collector.
func (c *Consumer) Describe(ch chan<- *prometheus.Desc) { c.set.describe(ch) }

// Collect implements prometheus.Collector.
func (c *Consumer) Collect(ch chan<- prometheus.Metric) { c.set.collect(ch) }

// PartitionAssigned implements [consumer.Metrics].
func (c *Consumer) PartitionAssigned(partition int, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned[partition] = true
	c.epoch.set(float64(epoch), strconv.Itoa(partition))
}

// PartitionGone implements [consumer.Metrics].
func (c *Consumer) PartitionGone(partition int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owned, partition)
	for _, v := range []vec{c.epoch, c.lag, c.messages, c.bytes} {
		v.drop(strconv.Itoa(partition))
	}
}

// gauge sets gauges of a partition, unless it has gone meanwhile.
func (c *Consumer) gauge(partition int, set func(label string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned[partition] {
		set(strconv.Itoa(partition))
	}
}

// Lag implements [consumer.Metrics].
func (c *Consumer) Lag(partition int, messages uint64) {
	c.gauge(partition, func(label string) { c.lag.set(float64(messages), label) })
}

// Buffered implements [consumer.Metrics].
func (c *Consumer) Buffered(partition int, messages, bytes int) {
	c.gauge(partition, func(label string) {
		c.messages.set(float64(messages), label)
		c.bytes.set(float64(bytes), label)
	})
}

// Fetched implements [consumer.Metrics].
func (c *Consumer) Fetched(messages int) { c.fetched.add(float64(messages)) }

// Handled implements [consumer.Metrics].
func (c *Consumer) Handled(_ int, took time.Duration, err error) {
	c.handled.observe(took, result(err))
}

// Committed implements [consumer.Metrics].
func (c *Consumer) Committed(_ int, took time.Duration, err error) {
	c.committed.observe(took, result(err))
}

// Expired implements [consumer.Metrics].
func (c *Consumer) Expired(_ int, sequences uint64) { c.expired.add(float64(sequences)) }

// Poisoned implements [consumer.Metrics].
func (c *Consumer) Poisoned(_ int, action consumer.PoisonAction) { c.poisoned.add(1, action.String()) }

// ReadingRestarted implements [consumer.Metrics].
func (c *Consumer) ReadingRestarted(int, string) { c.restarts.add(1) }
