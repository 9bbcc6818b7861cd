package kv

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	headerKVOperation  = "KV-Operation"
	headerMarkerReason = "Nats-Marker-Reason"
	headerSequence     = "Nats-Sequence"
	headerSubject      = "Nats-Subject"
	headerTimestamp    = "Nats-Time-Stamp"
)

// livePrefix is where the server republishes what it stores. No user's stream may capture it.
func livePrefix(namespace string) string { return "_PARTI." + namespace + ".live." }

// LiveSubject returns the subject on which changes of the two-token key arrive; wildcards may stand for tokens.
func LiveSubject(namespace, key string) string { return livePrefix(namespace) + key }

// ParseLive decodes a message received on a live subject of the namespace. The value shares memory with the message.
func ParseLive(namespace string, m *nats.Msg) (Entry, error) {
	key, ok := strings.CutPrefix(m.Subject, livePrefix(namespace))
	if a, b, two := strings.Cut(key, "."); !ok || !two || a == "" || b == "" || strings.Contains(b, ".") {
		return Entry{}, fmt.Errorf("kv: %q is not a live subject of %q", m.Subject, namespace)
	}
	rev, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
	if err == nil && rev == 0 {
		err = strconv.ErrRange
	}
	if err != nil {
		return Entry{}, fmt.Errorf("kv: live message on %q without a revision: %w", m.Subject, err)
	}
	created, _ := time.Parse(time.RFC3339Nano, m.Header.Get(headerTimestamp)) // informative only
	return Entry{Key: key, Value: m.Data, Revision: rev, Op: opOf(m.Header), Created: created}, nil
}

func opOf(h nats.Header) Op {
	switch {
	case h.Get(headerMarkerReason) == "MaxAge":
		return Expire
	case h.Get(headerMarkerReason) != "", h.Get(headerKVOperation) == "DEL", h.Get(headerKVOperation) == "PURGE":
		return Delete
	}
	return Put
}
