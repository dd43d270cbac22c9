// Package recording stores snapshots in a file or in a directory of files, and finds them by
// their time.
//
// A recording is a sequence of segments: each is a gzip stream of JSON lines that begins with
// the full state. A file has one segment after the other, so `zcat FILE | jq` reads it.
package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// Past is what a recording knows of the locks at its end, for the process that continues
// it: the begins of holds and waits do not end with a restart. It is safe for concurrent
// use. The zero value is empty.
type Past struct {
	hash func(string) string

	mu    sync.Mutex
	at    time.Time                     // of the last frame
	locks map[keyspace.ID]keyspace.Lock // on any server: a failover during the restart may have replaced it
}

// maxPastAge is the age of a last frame that a process still continues. A client may use
// its holder ID for one hold after the other, so an old frame proves little.
const maxPastAge = 10 * time.Minute

// newPast reads the end of the recording in a directory, which may be empty. hash is how
// its tokens were replaced.
func newPast(dir string, hash func(string) string) *Past {
	r, err := Open(dir)
	if err != nil {
		return &Past{}
	}
	defer r.Close()
	_, end := r.Span()
	s, err := r.At(end, time.Time{})
	if err != nil {
		return &Past{}
	}
	p := &Past{hash: hash, at: s.At, locks: make(map[keyspace.ID]keyspace.Lock, len(s.Locks))}
	for _, l := range s.Locks {
		p.locks[l.ID().OnAnyNode()] = *l
	}
	return p
}

// Lock returns a lock, which was read at a time of the server, as the recording has it at
// its end. It is false if the lock is not there, or if the end is more than 10 min earlier.
func (p *Past) Lock(now keyspace.Lock, at time.Time) (was keyspace.Lock, known bool) {
	p.mu.Lock()
	was, known = p.locks[now.ID().OnAnyNode()]
	p.mu.Unlock()
	if age := at.Sub(p.at); !known || age < 0 || age > maxPastAge {
		return keyspace.Lock{}, false
	}
	ids := make(map[string]string) // by hash
	for _, h := range now.Holders {
		ids[p.hash(h.ID)] = h.ID
	}
	for _, w := range now.Waiters {
		ids[p.hash(w.ID)] = w.ID
	}
	was = mapLock(was, func(name string) string { return name }, func(hash string) string { return cmp.Or(ids[hash], hash) })
	was.Node = now.Node
	return was, true
}

// Forget empties the past, which is useless once all locks have been read.
func (p *Past) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks = nil
}

// Defaults and limits of a recording in a directory.
const (
	DefaultKeep     = 24 * time.Hour
	DefaultKeepSize = 1 << 30 // bytes

	frameInterval   = time.Second
	segmentSpan     = 20 * time.Minute
	segmentSize     = 4 << 20   // bytes after the full state, compressed
	segmentUnpacked = 256 << 20 // bytes after the full state
	retryInterval   = 10 * time.Second

	segmentName = "20060102T150405.000Z" // UTC time of the full state
	lockName    = "writer.lock"
)

// ErrLocked means that another process records in the directory.
var ErrLocked = errors.New("another process records in it")

// DirOptions configures a DirWriter. The zero value keeps 24 h, at most 1 GiB, without
// tokens.
type DirOptions struct {
	Keep     time.Duration     // segments that end earlier are deleted; 0 = DefaultKeep
	KeepSize int64             // bytes; the oldest segments above it are deleted; 0 = DefaultKeepSize
	Tokens   bool              // record tokens; without it they are replaced by hashes
	Index    func() Indexer    // makes indexes of segments, which Walk reads faster; nil: there are none
	Report   func(text string) // called when recording fails, continues, or deletes segments because of KeepSize; nil: nothing is reported
}

// DirWriter records snapshots in segments, which are files in a directory: one frame per
// second. It deletes old segments. Only one DirWriter at a time can use a directory. It is
// not safe for concurrent use.
//
// Times are those of the snapshots. If the process is killed, the frames that were written
// are readable.
type DirWriter struct {
	dir     string
	options DirOptions
	token   func(string) string
	lock    *os.File
	past    *Past

	segments []segmentFile // in the order of their times; the last one may be open
	create   func(name string) (io.WriteCloser, error)
	file     io.WriteCloser // of the open segment; nil: none is open
	segment  *segmentWriter
	indexing *indexing         // nil: no segment was ended
	pending  keyspace.Snapshot // the latest snapshot, with the events since the last frame
	last     time.Time         // of the last frame
	due      time.Time         // of the next frame; the mean of their intervals is frameInterval
	failed   time.Time         // of the last failure; zero: recording works
	err      error             // the last failure; nil: recording works
	trimmed  bool              // a deletion because of KeepSize was reported
}

// segmentFile is a segment in the directory.
type segmentFile struct {
	name  string
	start time.Time
	size  int64
}

// NewDirWriter returns a DirWriter for a directory, which is created if it does not exist.
// The error is [ErrLocked] if another DirWriter uses it. Other failures are only reported,
// and tried again when snapshots are added.
func NewDirWriter(dir string, o DirOptions) (*DirWriter, error) {
	o.Keep, o.KeepSize = cmp.Or(o.Keep, DefaultKeep), cmp.Or(o.KeepSize, DefaultKeepSize)
	if o.Report == nil {
		o.Report = func(string) {}
	}
	w := &DirWriter{dir: dir, options: o, create: createFile, past: &Past{}}
	err := w.open()
	if errors.Is(err, ErrLocked) {
		return nil, err
	}
	w.token = func(token string) string { return token }
	if !o.Tokens {
		w.token = redactorIn(dir).hash
	}
	if err == nil {
		w.past = newPast(dir, w.token)
	}
	return w, nil
}

// Past returns what the recording knew of the locks before this DirWriter.
func (w *DirWriter) Past() *Past { return w.past }

// open locks the directory and lists its segments.
func (w *DirWriter) open() error {
	if w.lock != nil {
		_ = w.lock.Close() // it is only locked
		w.lock = nil
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	lock, err := lockFile(filepath.Join(w.dir, lockName))
	if err != nil {
		return fmt.Errorf("record in %s: %w", w.dir, err)
	}
	w.lock = lock
	w.segments, err = listSegments(w.dir)
	return err
}

// listSegments returns the segments that a DirWriter wrote to a directory, by their names.
func listSegments(dir string) ([]segmentFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []segmentFile
	for _, e := range entries {
		name, ours := strings.CutSuffix(e.Name(), segmentSuffix)
		start, err := time.Parse(segmentName, name)
		if !ours || err != nil || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil { // it may have been deleted
			size := info.Size()
			if index, err := os.Stat(filepath.Join(dir, indexName(e.Name()))); err == nil {
				size += index.Size()
			}
			all = append(all, segmentFile{e.Name(), start, size})
		}
	}
	slices.SortFunc(all, func(a, b segmentFile) int { return a.start.Compare(b.start) })
	return all, nil
}

// Add records a snapshot. If it is not yet time for the next frame, its events are kept for
// that. A failure is reported once; Add tries again every
// 10 s.
func (w *DirWriter) Add(s keyspace.Snapshot) {
	s.Events = boundedAppend(w.pending.Events, s.Events)
	s.Notices = boundedAppend(w.pending.Notices, s.Notices)
	w.pending = s
	switch back := w.last.Sub(s.At); {
	case !w.failed.IsZero() && s.At.Sub(w.failed).Abs() < retryInterval:
		return
	case w.failed.IsZero() && s.At.Before(w.due) && back < recordingGap:
		return // it is not time, or the clock of the server went back a little
	}
	w.flush()
}

// Err returns why the last frame was not written, until one is written again; nil: recording works.
func (w *DirWriter) Err() error { return w.err }

// boundedAppend appends events or notices up to a limit.
func boundedAppend[T any](all, more []T) []T {
	return append(all, more[:min(len(more), max(0, 2*maxEvents-len(all)))]...)
}

// Close writes the last snapshot and ends the segment.
func (w *DirWriter) Close() error {
	if w.failed.IsZero() && w.pending.At.After(w.last) {
		w.flush()
	}
	err := w.endSegment()
	w.indexing.wait()
	if w.lock != nil {
		err = errors.Join(err, w.lock.Close())
	}
	return err
}

// flush writes the pending snapshot and deletes old segments.
func (w *DirWriter) flush() {
	s := w.pending
	err := w.write(s)
	w.err = err
	w.applyRetention(s.At)
	switch {
	case err != nil:
		if w.failed.IsZero() {
			w.options.Report(fmt.Sprintf("recording in %s stopped: %v; trying again every %d s", w.dir, err, retryInterval/time.Second))
		}
		if w.file != nil {
			_ = w.file.Close() // the failure was reported
		}
		w.file, w.segment = nil, nil
		w.failed = s.At
		return
	case !w.failed.IsZero():
		w.options.Report(fmt.Sprintf("recording in %s continues", w.dir))
	}
	if s.At.Before(w.last) {
		w.due = time.Time{}
	}
	w.failed, w.last = time.Time{}, s.At
	w.due = keyspace.Later(w.due.Add(frameInterval), s.At.Add(frameInterval/2))
	w.pending = keyspace.Snapshot{At: s.At}
}

// write adds a frame, and begins a new segment if it is time.
func (w *DirWriter) write(s keyspace.Snapshot) error {
	if w.lock == nil || !w.failed.IsZero() {
		if err := w.open(); err != nil {
			return err
		}
	}
	if w.segment == nil {
		return w.beginSegment(s)
	}
	if s.At.Before(w.last) { // the clock of the server went back
		return w.nextSegment(s)
	}
	if err := w.segment.Add(s); errors.Is(err, errLargeFrame) {
		return w.nextSegment(s)
	} else if err != nil {
		return err
	}
	current := &w.segments[len(w.segments)-1]
	current.size = w.segment.out.n
	if s.At.Sub(current.start) < segmentSpan && !w.segment.full(w.options.KeepSize/4) {
		return nil
	}
	s.Events, s.Notices = nil, nil // they are in the segment that ends
	return w.nextSegment(s)
}

// nextSegment ends the open segment and begins another one.
func (w *DirWriter) nextSegment(s keyspace.Snapshot) error {
	if err := w.endSegment(); err != nil {
		return err
	}
	w.index()
	return w.beginSegment(s)
}

// index makes the index of the segment that has ended, after that of the one before.
func (w *DirWriter) index() {
	if w.options.Index == nil {
		return
	}
	w.indexing.wait()
	n := len(w.segments) - 1
	if x := w.indexing; x == nil || x.err != nil || n < 1 || w.segments[n-1].name != x.before {
		w.indexing = &indexing{dir: w.dir, indexer: w.options.Index()}
	} else {
		w.segments[n-1].size += x.size
	}
	w.indexing.begin(w.segments[n].name)
}

// beginSegment creates a file and writes the full state.
func (w *DirWriter) beginSegment(s keyspace.Snapshot) error {
	start := s.At.UTC().Truncate(time.Millisecond)
	for {
		name := start.Format(segmentName) + segmentSuffix
		f, err := w.create(filepath.Join(w.dir, name))
		if errors.Is(err, fs.ErrExist) {
			start = start.Add(time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		w.segment, err = newSegmentWriter(f, s, w.token, false)
		if err != nil {
			return errors.Join(err, f.Close(), os.Remove(filepath.Join(w.dir, name))) // it has no frame
		}
		w.file = f
		w.segments = append(w.segments, segmentFile{name, start, w.segment.out.n})
		return nil
	}
}

// createFile creates a file that only its owner can read.
func createFile(name string) (io.WriteCloser, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// endSegment closes the open segment, if there is one.
func (w *DirWriter) endSegment() error {
	if w.file == nil {
		return nil
	}
	err := w.segment.Close()
	w.segments[len(w.segments)-1].size = w.segment.out.n
	err = errors.Join(err, w.file.Close())
	w.file, w.segment = nil, nil
	return err
}

// applyRetention deletes the segments that ended before the time to keep, and the oldest
// ones if all are too large. It never deletes the last one.
func (w *DirWriter) applyRetention(now time.Time) {
	old, bySize := 0, 0
	for old+1 < len(w.segments) && w.segments[old+1].start.Before(now.Add(-w.options.Keep)) {
		old++
	}
	total := int64(0)
	for i := len(w.segments) - 1; i >= old; i-- {
		if total += w.segments[i].size; total > w.options.KeepSize && i < len(w.segments)-1 {
			bySize = i + 1 - old
			break
		}
	}
	if bySize > 0 && !w.trimmed {
		w.trimmed = true
		w.options.Report(fmt.Sprintf("the recording in %s has more than %d MiB: the oldest segments are deleted before their time", w.dir, w.options.KeepSize>>20))
	}
	if old+bySize > 0 {
		w.indexing.wait()
	}
	for _, s := range w.segments[:old+bySize] {
		_ = os.Remove(filepath.Join(w.dir, indexName(s.name)))
		_ = os.Remove(filepath.Join(w.dir, s.name)) // the next listing has it again
	}
	w.segments = slices.Delete(w.segments, 0, old+bySize)
}
