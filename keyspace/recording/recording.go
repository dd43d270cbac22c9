// Package recording stores snapshots in a file or in a directory of files, and finds them by
// their time.
//
// A recording is a sequence of segments: each is a gzip stream of JSON lines that begins with
// the full state. A file has one segment after the other, so `zcat FILE | jq` reads it.
package recording

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"locktop/keyspace"
)

// ErrFormat means that a file is not a recording, or has another version.
var ErrFormat = errors.New("not a recording that this version of locktop can read")

// Writer writes a recording to one file, with all events and exact deadlines. If the process
// is killed, the snapshots that were written are readable. It is not safe for concurrent use.
type Writer struct {
	out     io.Writer
	token   func(string) string
	segment *segmentWriter // nil: none is open
	start   time.Time      // of the segment
}

// NewWriter returns a Writer. With redact, tokens are replaced by hashes, because a token
// permits its reader to release the lock.
func NewWriter(to io.Writer, redact bool) *Writer {
	w := &Writer{out: to}
	if redact {
		w.token = newRedactor().hash
	}
	return w
}

// Add writes the next snapshot.
func (w *Writer) Add(s keyspace.Snapshot) error {
	if w.segment == nil || s.At.Before(w.segment.last.At) {
		return w.begin(s)
	}
	switch err := w.segment.Add(s); {
	case errors.Is(err, errLargeFrame):
		return w.begin(s)
	case err != nil:
		return fmt.Errorf("record: %w", err)
	case s.At.Sub(w.start) < 30*time.Second && !w.segment.full(math.MaxInt64): // a jump back reads at most one segment
		return nil
	}
	s.Events, s.Notices = nil, nil // they are in the segment that ends
	return w.begin(s)
}

// begin ends the open segment and writes the full state of the next one.
func (w *Writer) begin(s keyspace.Snapshot) error {
	err := w.Close()
	if err == nil {
		w.start = s.At
		w.segment, err = newSegmentWriter(w.out, s, w.token, true)
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Close ends the recording. It does not close the file.
func (w *Writer) Close() error {
	if w.segment == nil {
		return nil
	}
	ended := w.segment
	w.segment = nil
	return ended.Close()
}
