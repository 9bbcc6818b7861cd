package integration

import (
	"context"
	"log/slog"
	"sync"
)

// warnings keeps what is logged at level Warn and above.
type warnings struct {
	mu  sync.Mutex
	got []string
}

func (w *warnings) logger() *slog.Logger { return slog.New(w) }

func (w *warnings) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.got...)
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w *warnings) WithGroup(string) slog.Handler                { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, line)
	return nil
}
