package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/partigo/parti/consumer"
)

// viewer reads one partition and shows it.
type viewer struct {
	*consumer.Reader
	out       io.Writer
	partition int
	sequences []uint64 // of all readings, as seen the first time
}

// read reads up to the end, with the lag before and after, and fails if that is not exactly everything from the reading number first on.
func (v *viewer) read(ctx context.Context, how string, first int) error {
	before, err := v.Lag(ctx, v.partition)
	if err != nil {
		return err
	}
	fmt.Fprintf(v.out, "Read %s. Lag: %d.\n", how, before)
	var seen []string
	for left := total - first + 1; left > 0; {
		messages, err := v.Fetch(ctx, 5) // at most 5 at a time
		if err != nil {
			return err
		}
		for _, m := range messages {
			seen = append(seen, strings.TrimSuffix(string(m.Data), " °C"))
			if first == 1 {
				v.sequences = append(v.sequences, m.Sequence)
			}
			if want := fmt.Sprintf("%d °C", 60+first+len(seen)-1); string(m.Data) != want {
				return fmt.Errorf("read %s instead of %s", m.Data, want)
			}
		}
		if err := v.Ack(ctx, messages...); err != nil { // the offset is stored when this returns
			return err
		}
		left -= len(messages)
	}
	after, err := v.Lag(ctx, v.partition)
	if err != nil {
		return err
	}
	if int(before) != total-first+1 || after != 0 {
		return fmt.Errorf("the lag was %d, and is %d", before, after)
	}
	fmt.Fprintf(v.out, "  %s\n  Lag: %d.\n", strings.Join(seen, " "), after)
	return nil
}
