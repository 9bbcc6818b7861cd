package consumer

import (
	"strconv"
	"strings"
	"time"
)

const ackPrefix = "$JS.ACK."

// metadata is what a message's reply subject says about its delivery.
type metadata struct {
	streamSeq   uint64
	consumerSeq uint64
	stored      int64 // Unix time in ns
	pending     uint64
}

// parseReply reads the metadata of a delivered message: $JS.ACK.<stream>.<consumer>.<tries>.<stream seq>.<consumer seq>.<time>.<pending>,
// or the longer form with domain and account hash before the stream and anything behind.
func parseReply(reply string) (m metadata, ok bool) {
	if !strings.HasPrefix(reply, ackPrefix) {
		return m, false
	}
	rest := reply[len(ackPrefix):]
	skip := 3 // stream, consumer, tries
	if strings.Count(rest, ".") > 6 {
		skip = 5
	}
	for ; skip > 0; skip-- {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return m, false
		}
		rest = rest[i+1:]
	}
	var fields [4]uint64
	for i := range fields {
		token := rest
		if j := strings.IndexByte(rest, '.'); j >= 0 {
			token, rest = rest[:j], rest[j+1:]
		} else if i < len(fields)-1 {
			return m, false
		}
		n, good := digits(token)
		if !good {
			return m, false
		}
		fields[i] = n
	}
	return metadata{streamSeq: fields[0], consumerSeq: fields[1], stored: int64(fields[2]), pending: fields[3]}, true
}

func digits(s string) (n uint64, ok bool) {
	if s == "" || len(s) > 19 {
		return 0, false
	}
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, true
}

// pullRequest encodes a pull of n messages and at most maxBytes (0: any), which ends after expires and says that it lives every
// heartbeat.
func pullRequest(n, maxBytes int, expires, heartbeat time.Duration) []byte {
	b := make([]byte, 0, 96)
	b = append(b, `{"batch":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	if maxBytes > 0 {
		b = append(b, `,"max_bytes":`...)
		b = strconv.AppendInt(b, int64(maxBytes), 10)
	}
	b = append(b, `,"expires":`...)
	b = strconv.AppendInt(b, int64(expires), 10)
	b = append(b, `,"idle_heartbeat":`...)
	b = strconv.AppendInt(b, int64(heartbeat), 10)
	return append(b, '}')
}

// matches reports whether the subject is one that the filter, which may have wildcards, selects.
func matches(filter, subject string) bool {
	for {
		f, fRest, fMore := strings.Cut(filter, ".")
		if f == ">" {
			return subject != ""
		}
		s, sRest, sMore := strings.Cut(subject, ".")
		if f != "*" && f != s || fMore != sMore {
			return false
		}
		if !fMore {
			return true
		}
		filter, subject = fRest, sRest
	}
}

func hasWildcard(filter string) bool {
	for token := range strings.SplitSeq(filter, ".") {
		if token == "*" || token == ">" {
			return true
		}
	}
	return false
}
