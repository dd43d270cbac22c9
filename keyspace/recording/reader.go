package recording

import (
	"bufio"
	"bytes"
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

// Reader finds snapshots in a recording, also while a [Writer] or a [DirWriter] writes it. It
// keeps the state of one moment in memory. It is not safe for concurrent use.
type Reader struct {
	alwaysOn bool
	segments []segmentRef
	last     time.Time // of the last frame
	damage   error

	open    int // the segment that is read; -1: none
	file    *os.File
	segment *segmentReader
	stop    func()            // stops the frames that segment reads in the background; nil: it reads none so
	shown   keyspace.Snapshot // of the state of segment, without events
	asked   time.Time         // of the last call of At
	skipped bool              // frames of segment are missing: Walk has used an index, or has read ahead
	aheadOf int               // the segment whose index is read in the background
	ahead   <-chan func()
	every   time.Duration // time between the last two frames of a segment; 0 = unknown
}

// segmentRef is a segment to read.
type segmentRef struct {
	name   string // with its directory
	offset int64  // in the file
	start  time.Time
	bad    bool // its full state is not readable
}

// Open opens a file, or a directory of files. Of a directory it reads only the beginnings of
// the files and the whole of the last one. A damaged segment does not affect the others; see
// [Reader.Damage]. Open returns [ErrFormat] if nothing is readable.
func Open(name string) (*Reader, error) {
	r := &Reader{open: -1}
	names, err := r.filesOf(name)
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	for _, n := range names {
		r.addSegments(n)
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

// filesOf returns the files of a directory, which have one segment each, or name itself if it
// is a file: that may have several.
func (r *Reader) filesOf(name string) (names []string, err error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	r.alwaysOn = true
	entries, err := os.ReadDir(name)
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), segmentSuffix) {
			names = append(names, filepath.Join(name, e.Name()))
		}
	}
	return names, err
}

// addSegments adds the segments of a file, which may be too short if it was just created.
func (r *Reader) addSegments(name string) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return // it was deleted because of its age
	}
	if err != nil {
		r.damaged(name, err)
		return
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	for at, next := int64(0), 0; ; at += int64(next) {
		_, _ = in.Discard(next)
		window, _ := in.Peek(in.Size())
		if len(window) < segmentPrefix {
			return // the end of the file
		}
		start, ok := segmentStart(window)
		switch {
		case ok:
			r.segments = append(r.segments, segmentRef{name: name, offset: at, start: start})
		case at == 0:
			r.damaged(name, errors.New("it is not a segment"))
			return
		}
		if r.alwaysOn {
			return
		}
		if next = 1 + bytes.Index(window[1:], []byte(memberStart)); next == 0 {
			next = len(window) - segmentPrefix + 1
		}
	}
}

// findEnd sets the end of the recording to the last frame of segment n, if it has one.
func (r *Reader) findEnd(n int) {
	f, err := r.segments[n].openFile()
	if err != nil {
		r.damaged(r.segments[n].name, err)
		return
	}
	defer f.Close()
	last, damage, err := lastFrame(f)
	if cut := errors.Join(err, damage); !r.alwaysOn && errors.Is(cut, io.ErrUnexpectedEOF) && endsInFrame(f) {
		r.damaged(r.segments[n].name, cut)
	}
	switch {
	case endOfSegment(err): // it was cut off in its full state
		r.segments = r.segments[:n]
	case err != nil:
		r.segments[n].bad = true
		r.damaged(r.segments[n].name, err)
	default:
		if r.last = last; !endOfSegment(damage) {
			r.damaged(r.segments[n].name, damage)
		}
	}
}

// endsInFrame reports whether a file was cut off in a frame. The flush after a whole frame ends with these bytes.
func endsInFrame(f *os.File) bool {
	end := make([]byte, 4)
	_, _ = f.Seek(-4, io.SeekEnd)
	_, _ = io.ReadFull(f, end)
	return string(end) != "\x00\x00\xff\xff"
}

// damaged records the first damage.
func (r *Reader) damaged(name string, err error) {
	if r.damage == nil {
		r.damage = fmt.Errorf("damaged in the segment %s: %w", filepath.Base(name), err)
	}
}

// Damage returns what is wrong with the segments that were read so far, or nil. A segment
// whose writer was killed is not damaged, unless a file ends within a frame.
func (r *Reader) Damage() error { return r.damage }

// AlwaysOn reports whether the recording is a directory, as a [DirWriter] writes it.
func (r *Reader) AlwaysOn() bool { return r.alwaysOn }

// Span returns the times of the first and the last snapshot.
func (r *Reader) Span() (first, last time.Time) { return r.segments[0].start, r.last }

// Close closes the files. The Reader must not be used afterwards.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// At returns the newest snapshot that is not later than t, or the first snapshot if
// all are later. Its events are those after since; with a zero since it has none.
func (r *Reader) At(t, since time.Time) (keyspace.Snapshot, error) {
	from := t
	if !since.IsZero() && since.Before(t) {
		from = since
	}
	if !r.canContinue(from) {
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
func (r *Reader) Gap() (from, until time.Time) {
	if r.segment == nil {
		return time.Time{}, time.Time{}
	}
	from, until = r.segment.at, r.nextTime()
	if gap := max(recordingGap, 3*r.every); r.asked.Sub(from) > gap && until.Sub(from) > gap {
		return from, until
	}
	return time.Time{}, time.Time{}
}

// canContinue reports whether the frames after the current state are enough, and no later segment is nearer.
func (r *Reader) canContinue(from time.Time) bool {
	if r.segment == nil || r.skipped || r.segment.at.After(from) {
		return false
	}
	next, exists := r.nextSegment()
	return !exists || r.segments[next].start.After(from)
}

// advance opens the next segment if it is time, and reports whether there is a frame to
// apply: one that is not later than t, or the first one of a segment.
func (r *Reader) advance(t time.Time) bool {
	for {
		at, ok := r.segment.peek()
		if !ok && !endOfSegment(r.segment.end) {
			r.damaged(r.segments[r.open].name, fmt.Errorf("after %s: %w", r.segment.at.Local().Format(time.TimeOnly), r.segment.end))
		}
		next, due := r.due(t)
		if !due {
			return ok && !(r.segment.started && at.After(t))
		}
		_ = r.openSegment(next) // on a failure nextSegment returns the one after it
	}
}

// due returns the segment after the open one, and whether a walk to t continues with it.
func (r *Reader) due(t time.Time) (next int, due bool) {
	next, exists := r.nextSegment()
	if !r.segment.started || !exists || r.segments[next].start.After(t) {
		return next, false
	}
	at, ok := r.segment.peek()
	return next, r.skipped || !ok || at.After(r.segments[next].start)
}

// nextSegment returns the segment after the open one.
func (r *Reader) nextSegment() (n int, exists bool) {
	n = r.open + 1
	for n < len(r.segments) && r.segments[n].bad {
		n++
	}
	return n, n < len(r.segments)
}

// nextTime returns the time of the next frame, or that of the state if there is none.
func (r *Reader) nextTime() time.Time {
	if at, ok := r.segment.peek(); ok {
		return at
	}
	if next, exists := r.nextSegment(); exists {
		return r.segments[next].start
	}
	return r.segment.at
}

// seek opens the segment of a moment, or the nearest that is readable.
func (r *Reader) seek(t time.Time) error {
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
func (r *Reader) openSegment(n int) error {
	s := &r.segments[n]
	f, segment, err := s.read()
	if err != nil {
		if !s.bad && !endOfSegment(err) {
			r.damaged(s.name, err)
		}
		s.bad = true
		return err
	}
	_ = r.Close() // it was only read
	r.open, r.file, r.segment, r.shown, r.skipped = n, f, segment, keyspace.Snapshot{}, false
	if r.stop != nil {
		r.stop()
		r.stop = segment.readAhead()
	}
	return nil
}

// openFile opens the file of a segment at its beginning.
func (s segmentRef) openFile() (*os.File, error) {
	f, err := os.Open(s.name)
	if err == nil {
		_, err = f.Seek(s.offset, io.SeekStart)
	}
	return f, err
}

// read opens a segment and reads its full state.
func (s segmentRef) read() (*os.File, *segmentReader, error) {
	f, err := s.openFile()
	if err != nil {
		return nil, nil, err
	}
	var segment *segmentReader
	lines, err := newSegmentLines(f)
	if err == nil {
		segment, err = newSegmentReader(lines)
	}
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	return f, segment, nil
}
