package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/partigo/parti/types"
)

// writer appends canonical JSON. The bytes are hashed and must never change, so they do not come from encoding/json, whose
// escaping is its own affair.
type writer struct {
	buf []byte
	// bad is the last text that is not UTF-8: JSON cannot carry it, and a reader would see another one.
	bad string
}

func (w *writer) raw(s string) { w.buf = append(w.buf, s...) }
func (w *writer) int(n int64)  { w.buf = strconv.AppendInt(w.buf, n, 10) }

// item writes what stands before item i of a list.
func (w *writer) item(i int) {
	if i > 0 {
		w.buf = append(w.buf, ',')
	}
}

func (w *writer) text(s string) {
	const hex = "0123456789abcdef"
	w.buf = append(w.buf, '"')
	ascii := true
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.buf = append(w.buf, '\\', c)
		case c < 0x20:
			w.buf = append(w.buf, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			ascii = ascii && c < utf8.RuneSelf
			w.buf = append(w.buf, c)
		}
	}
	w.buf = append(w.buf, '"')
	if !ascii && !utf8.ValidString(s) {
		w.bad = s
	}
}

func (w *writer) bytes(what string) ([]byte, error) {
	if w.bad != "" {
		return nil, malformed(what, "the text %q is not UTF-8", w.bad)
	}
	return w.buf, nil
}

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("%w: %s: "+format, append([]any{types.ErrMalformed, what}, args...)...)
}

func checkSchema(what string, schema int) error {
	switch {
	case schema > types.CommitSchema:
		return fmt.Errorf("%w: %s has schema %d, this release reads up to %d: upgrade this process",
			types.ErrUnsupportedSchema, what, schema, types.CommitSchema)
	case schema < 1:
		return malformed(what, "schema %d, expected at least 1", schema)
	}
	return nil
}

// classify turns the error of a decoder into one of the two that readers know. A value of a later schema may look different
// before its number is reached, so the number is looked up on its own.
func classify(what string, data []byte, err error) error {
	if err == nil || errors.Is(err, types.ErrMalformed) || errors.Is(err, types.ErrUnsupportedSchema) {
		return err
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if _ = json.Unmarshal(data, &head); head.Schema > types.CommitSchema {
		return checkSchema(what, head.Schema)
	}
	return malformed(what, "%w", err)
}

// readObject decodes one JSON object field by field and stops at the first fault, so that a long bad value is not decoded to
// its end. Fields without a reader are skipped.
func readObject(what string, data []byte, fields map[string]func(*json.Decoder) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	schema := 0
	err := readFields(dec, func(name string) error {
		read, known := fields[name]
		switch {
		case name == "schema":
			if err := dec.Decode(&schema); err != nil {
				return err
			}
			return checkSchema(what, schema)
		case known:
			return read(dec)
		}
		var skipped json.RawMessage
		return dec.Decode(&skipped)
	})
	if err == nil && schema == 0 {
		err = errors.New("no schema")
	}
	return classify(what, data, err)
}

func readFields(dec *json.Decoder, field func(name string) error) error {
	if err := expect(dec, json.Delim('{')); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if err := field(name.(string)); err != nil { // inside an object, a token before a value is a name
			return err
		}
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the object")
	}
	return nil
}

// readList decodes a JSON list item by item.
func readList(dec *json.Decoder, item func(*json.Decoder) error) error {
	if err := expect(dec, json.Delim('[')); err != nil {
		return err
	}
	for dec.More() {
		if err := item(dec); err != nil {
			return err
		}
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%v instead of %v", got, want)
	}
	return nil
}
