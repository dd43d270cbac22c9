package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"locktop/keyspace"
)

// DirReader finds snapshots in a recording that a [DirWriter] wrote, also while it writes.
// It keeps the state of one moment in memory. It is not safe for concurrent use.
type DirReader struct {
	segments []segmentRef
	last     time.Time // of the last frame
	damage   error

	open    int // the segment that is read; -1: none
	file    *os.File
	segment *segmentReader
	shown   keyspace.Snapshot // of the state of segment, without events
	asked   time.Time         // of the last call of At
	every   time.Duration     // time between the last two frames of a segment; 0 = unknown
}

// segmentRef is a segment to read.
type segmentRef struct {
	name  string // with its directory
	start time.Time
	bad   bool // its full state is not readable
}

// OpenDir opens a directory of segments, or one segment. It reads only the beginnings of
// the segments and the whole of the last one. A damaged segment does not affect the others;
// see [DirReader.Damage]. OpenDir returns [ErrFormat] if nothing is readable.
func OpenDir(name string) (*DirReader, error) {
	r := &DirReader{open: -1}
	names, err := segmentNames(name)
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	for _, n := range names {
		r.addSegment(n)
	}
	slices.SortStableFunc(r.segments, func(a, b segmentRef) int { return a.start.Compare(b.start) })
	for n := len(r.segments) - 1; n >= 0 && r.last.IsZero(); n-- {
		r.findEnd(n)
	}
	if r.last.IsZero() {
		if r.damage == nil {
			return nil, fmt.Errorf("%w: it has no segment", ErrFormat)
		}
		return nil, fmt.Errorf("%w: %w", ErrFormat, r.damage)
	}
	return r, nil
}

// IsSegment reports whether a file is a segment.
func IsSegment(file io.ReaderAt) bool {
	prefix := make([]byte, segmentPrefix)
	_, err := file.ReadAt(prefix, 0)
	_, ok := segmentStart(prefix)
	return err == nil && ok
}

// segmentNames returns the segments of a directory, or name itself if it is a file.
func segmentNames(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	entries, err := os.ReadDir(name)
	var all []string
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), segmentSuffix) {
			all = append(all, filepath.Join(name, e.Name()))
		}
	}
	return all, err
}

// addSegment adds a file if it is a segment. A file that was just created may be too short.
func (r *DirReader) addSegment(name string) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return // it was deleted because of its age
	}
	if err != nil {
		r.damaged(name, err)
		return
	}
	defer f.Close()
	prefix := make([]byte, segmentPrefix)
	if _, err := io.ReadFull(f, prefix); endOfSegment(err) {
		return
	}
	start, ok := segmentStart(prefix)
	if !ok {
		r.damaged(name, errors.New("it is not a segment"))
		return
	}
	r.segments = append(r.segments, segmentRef{name: name, start: start})
}

// findEnd sets the end of the recording to the last frame of segment n, if it has one.
func (r *DirReader) findEnd(n int) {
	f, err := os.Open(r.segments[n].name)
	if err != nil {
		r.damaged(r.segments[n].name, err)
		return
	}
	defer f.Close()
	last, damage, err := lastFrame(f)
	switch {
	case endOfSegment(err): // it was cut off in its full state
		r.segments = r.segments[:n]
	case err != nil:
		r.segments[n].bad = true
		r.damaged(r.segments[n].name, err)
	default:
		r.last = last
		if damage != nil {
			r.damaged(r.segments[n].name, damage)
		}
	}
}

// damaged records the first damage.
func (r *DirReader) damaged(name string, err error) {
	if r.damage == nil {
		r.damage = fmt.Errorf("damaged in the segment %s: %w", filepath.Base(name), err)
	}
}

// Damage returns what is wrong with the segments that were read so far, or nil. A segment
// whose writer was killed is not damaged.
func (r *DirReader) Damage() error { return r.damage }

// Span returns the times of the first and the last snapshot.
func (r *DirReader) Span() (first, last time.Time) { return r.segments[0].start, r.last }

// Close closes the files. The DirReader must not be used afterwards.
func (r *DirReader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// At returns the newest snapshot that is not later than t, or the first snapshot if
// all are later. Its events are those after since; with a zero since it has none.
func (r *DirReader) At(t, since time.Time) (keyspace.Snapshot, error) {
	if !r.canContinue(t, since) {
		from := t
		if !since.IsZero() && since.Before(t) {
			from = since
		}
		if err := r.seek(from); err != nil {
			return keyspace.Snapshot{}, err
		}
	}
	var events []keyspace.Event
	for r.advance(t) {
		at, _ := r.segment.peek()
		if r.segment.started {
			r.every = at.Sub(r.segment.at)
		}
		more, err := r.segment.step(!since.IsZero() && at.After(since))
		if err != nil {
			continue // advance reports it
		}
		events = append(events, more...)
		r.shown = keyspace.Snapshot{}
	}
	if r.shown.At.IsZero() {
		r.shown = r.segment.snapshot()
	}
	snap := r.shown
	snap.Events = events
	r.asked = t
	return snap, nil
}

// Gap returns the times between which nothing was recorded, if the time of the last call of
// At is in a gap. Otherwise both are zero.
func (r *DirReader) Gap() (from, until time.Time) {
	if r.segment == nil {
		return time.Time{}, time.Time{}
	}
	from, until = r.segment.at, r.nextTime()
	if gap := max(recordingGap, 3*r.every); r.asked.Sub(from) > gap && until.Sub(from) > gap {
		return from, until
	}
	return time.Time{}, time.Time{}
}

func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }

// canContinue reports whether the frames after the current state are enough.
func (r *DirReader) canContinue(t, since time.Time) bool {
	return r.segment != nil && !r.segment.at.After(t) && (since.IsZero() || !since.Before(r.segment.at))
}

// advance opens the next segment if it is time, and reports whether there is a frame to
// apply: one that is not later than t, or the first one of a segment.
func (r *DirReader) advance(t time.Time) bool {
	for {
		at, ok := r.segment.peek()
		if !ok {
			r.reportEnd()
		}
		next, exists := r.nextSegment()
		if !r.segment.started || !exists || r.segments[next].start.After(t) || ok && !at.After(r.segments[next].start) {
			return ok && !(r.segment.started && at.After(t))
		}
		_ = r.openSegment(next) // on a failure nextSegment returns the one after it
	}
}

// nextSegment returns the segment after the open one.
func (r *DirReader) nextSegment() (n int, exists bool) {
	n = r.open + 1
	for n < len(r.segments) && r.segments[n].bad {
		n++
	}
	return n, n < len(r.segments)
}

// nextTime returns the time of the next frame, or that of the state if there is none.
func (r *DirReader) nextTime() time.Time {
	if at, ok := r.segment.peek(); ok {
		return at
	}
	if next, exists := r.nextSegment(); exists {
		return r.segments[next].start
	}
	return r.segment.at
}

// reportEnd records the damage that ends the open segment, if there is one.
func (r *DirReader) reportEnd() {
	if !endOfSegment(r.segment.end) {
		r.damaged(r.segments[r.open].name, fmt.Errorf("after %s: %w", clock(r.segment.at), r.segment.end))
	}
}

// seek opens the segment of a moment, or the nearest that is readable.
func (r *DirReader) seek(t time.Time) error {
	n := max(1, sort.Search(len(r.segments), func(i int) bool { return r.segments[i].start.After(t) }))
	for i := n - 1; i >= 0; i-- {
		if r.openSegment(i) == nil {
			return nil
		}
	}
	for i := n; i < len(r.segments); i++ {
		if r.openSegment(i) == nil {
			return nil
		}
	}
	return fmt.Errorf("read the recording: %w", r.damage)
}

// openSegment reads the full state of a segment. If that fails, the open segment stays open.
func (r *DirReader) openSegment(n int) error {
	s := &r.segments[n]
	f, segment, err := openSegmentFile(s.name)
	if err != nil {
		if !s.bad && !endOfSegment(err) {
			r.damaged(s.name, err)
		}
		s.bad = true
		return err
	}
	_ = r.Close() // it was only read
	r.open, r.file, r.segment, r.shown = n, f, segment, keyspace.Snapshot{}
	return nil
}

func openSegmentFile(name string) (*os.File, *segmentReader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	lines, err := newSegmentLines(f)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	segment, err := newSegmentReader(lines)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	return f, segment, nil
}
