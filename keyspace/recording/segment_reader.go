package recording

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"locktop/keyspace"
)

// segmentLines reads the lines of a segment and verifies them. The error of a segment
// that ends without its last bytes is [io.ErrUnexpectedEOF].
type segmentLines struct {
	scan      *bufio.Scanner
	sum       uint32 // of all lines
	unchecked bool   // ignore checksums, for tests
	maxState  int    // bytes
}

func newSegmentLines(file io.Reader) (*segmentLines, error) {
	zip, err := gzip.NewReader(bufio.NewReaderSize(file, 64<<10))
	if err != nil {
		return nil, err
	}
	zip.Multistream(false)
	return linesOf(zip), nil
}

// linesOf reads the lines of an uncompressed segment.
func linesOf(text io.Reader) *segmentLines {
	l := &segmentLines{scan: bufio.NewScanner(io.LimitReader(text, maxUnpacked)), maxState: maxState}
	l.scan.Buffer(make([]byte, 64<<10), maxLine)
	l.scan.Split(wholeLines)
	return l
}

// wholeLines is a [bufio.SplitFunc] for lines with their ends. It omits a last line without an end.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	i := bytes.IndexByte(data, '\n')
	if i < 0 {
		return 0, nil, nil
	}
	return i + 1, data[: i+1 : i+1], nil
}

// next returns the next line, or io.EOF at the end. The line is valid until the next call.
func (l *segmentLines) next() ([]byte, error) {
	if !l.scan.Scan() {
		if err := l.scan.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	line := l.scan.Bytes()
	if bytes.Count(line, []byte{'{'}) > maxObjects {
		return nil, errors.New("a line has too many objects")
	}
	if bytes.HasPrefix(line, []byte(framePrefix)) && !l.unchecked {
		if err := checkCRC(line, l.sum); err != nil {
			return nil, err
		}
	}
	l.sum = crc32.Update(l.sum, crc32.IEEETable, line)
	return line, nil
}

// lastFrame returns the time of the last readable frame of a segment, and the damage that follows, or its end.
func lastFrame(file io.Reader) (last time.Time, damage, err error) {
	lines, err := newSegmentLines(file)
	if err != nil {
		return time.Time{}, nil, err
	}
	var text []byte
	for {
		line, err := lines.next()
		if err != nil {
			damage = err
			break
		}
		if at, ok := bytes.CutPrefix(line, []byte(framePrefix)); ok {
			text = append(text[:0], at[:max(0, bytes.IndexByte(at, '"'))]...)
		}
	}
	if len(text) == 0 {
		return time.Time{}, nil, fmt.Errorf("it has no frame: %w", damage)
	}
	last, err = time.Parse(time.RFC3339Nano, string(text))
	return last, damage, err
}

// frame returns the next line, which is a frame.
func (l *segmentLines) frame() (*frame, error) {
	line, err := l.next()
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(line, []byte(framePrefix)) {
		return nil, errors.New("a line is not a frame")
	}
	f := new(frame)
	if err := decodeLine(line, f); err != nil {
		return nil, err
	}
	return f, nil
}

// endOfSegment reports whether an error is the end of an intact segment. A segment whose
// writer was killed ends without a checksum.
func endOfSegment(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// segmentReader reads the frames of a segment one after the other. It keeps the state of one moment.
type segmentReader struct {
	lines   *segmentLines
	at      time.Time         // of the state
	servers keyspace.Snapshot // see stateOf
	locks   []*lockEntry
	spare   []*lockEntry // memory for the next list
	size    int          // of the locks; see [keyspace.Lock.ApproxSize]
	pending *frame       // the frame after at; nil: none was read yet
	end     error        // why there are no more frames
	ahead   <-chan read  // frames that were read in the background; nil: each is read when it is needed
	started bool         // the first frame was applied
	applied frame        // the last frame that was applied
	before  []*lockEntry // the locks before it
}

// read is the next frame, or why there is none.
type read struct {
	frame *frame
	end   error
}

// framesAhead is how many frames are read in the background: a goroutine that is scheduled late delays none.
const framesAhead = 16

// lockEntry is a lock of a segmentReader. Renewals are added to the lock when it is used.
type lockEntry struct {
	lock     *keyspace.Lock // never changed; snapshots share it
	renewed  time.Time      // the last renewal that lock lacks
	renewals int            // number of renewals that lock lacks
	size     int            // see [keyspace.Lock.ApproxSize]
	renews   bool           // a renewal can be restored
}

func newLockEntry(l keyspace.Lock) *lockEntry {
	return &lockEntry{lock: &l, size: l.ApproxSize(), renews: !renewedFrom(&l).IsZero()}
}

var errTooLarge = errors.New("its locks need too much memory")

// current returns the lock with all renewals.
func (e *lockEntry) current() *keyspace.Lock {
	if e.renewals > 0 {
		ttl := e.lock.Expires.Sub(renewedFrom(e.lock))
		e.lock = new(withRenewal(*e.lock, e.renewed, e.renewed.Add(ttl)))
		e.lock.Renewals += e.renewals
		e.renewals = 0
	}
	return e.lock
}

// newSegmentReader reads the full state of a segment. The first frame is pending.
func newSegmentReader(lines *segmentLines) (*segmentReader, error) {
	line, err := lines.next()
	if err != nil {
		return nil, err
	}
	var h segmentHeader
	if err := decodeLine(line, &h); err != nil {
		return nil, err
	}
	switch {
	case h.Segment != segmentVersion:
		return nil, fmt.Errorf("a segment of version %d, not %d: %w", h.Segment, segmentVersion, ErrFormat)
	case h.Count < 0 || h.Count > maxLocks:
		return nil, fmt.Errorf("a segment of %d locks: %w", h.Count, ErrFormat)
	}
	r := &segmentReader{lines: lines, at: h.At}
	for range h.Count {
		line, err := lines.next()
		if err != nil {
			return nil, err
		}
		var l keyspace.Lock
		if err := decodeLine(line, &l); err != nil {
			return nil, err
		}
		e := newLockEntry(mapLock(l, unescapeText, unescapeText))
		if r.size += e.size; r.size > lines.maxState {
			return nil, errTooLarge
		}
		if n := len(r.locks); n > 0 && r.locks[n-1].lock.ID().Compare(e.lock.ID()) >= 0 {
			return nil, errors.New("its locks are out of order")
		}
		r.locks = append(r.locks, e)
	}
	if _, ok := r.peek(); !ok {
		return nil, fmt.Errorf("its full state has no checksum: %w", r.end)
	}
	return r, nil
}

// peek returns the time of the next frame; ok is false at the end.
func (r *segmentReader) peek() (at time.Time, ok bool) {
	if r.pending == nil && r.end == nil {
		r.read()
	}
	if r.pending == nil {
		return time.Time{}, false
	}
	return r.pending.At, true
}

// read reads the next frame.
func (r *segmentReader) read() {
	next := read{}
	if r.ahead != nil {
		next = <-r.ahead
	} else {
		next.frame, next.end = r.lines.frame()
	}
	if next.end == nil && next.frame.At.Before(r.at) {
		next = read{end: errors.New("its times are out of order")}
	}
	r.pending, r.end = next.frame, next.end
}

// readAhead makes the segment read its frames in the background, until its end or until it is stopped.
func (r *segmentReader) readAhead() (stop func()) {
	frames, stopped := make(chan read, framesAhead), make(chan struct{})
	r.ahead = frames
	go func() {
		for next := (read{}); next.end == nil; {
			next.frame, next.end = r.lines.frame()
			select {
			case frames <- next:
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}

// step applies the next frame and returns its events if they are wanted. The error at the
// end is that of [segmentLines].
func (r *segmentReader) step(wantEvents bool) ([]keyspace.Event, error) {
	if _, ok := r.peek(); !ok {
		return nil, r.end
	}
	f := r.pending
	r.pending, r.started = nil, true
	if !wantEvents {
		f.Events = nil
	}
	events, err := r.apply(f)
	if err != nil {
		r.end = err
	}
	return events, err
}

// apply applies a frame and returns its events.
func (r *segmentReader) apply(f *frame) ([]keyspace.Event, error) {
	if err := r.check(f); err != nil {
		return nil, err
	}
	was := make([]keyspace.Lock, len(f.Events)) // before the frame, of the events that refer to that
	for i, e := range f.Events {
		if e.Before == nil {
			continue
		}
		l, err := lockAt(r.locks, *e.Before)
		if err != nil {
			return nil, err
		}
		was[i] = l
	}
	for i, all := range f.Renewed {
		for _, at := range all {
			e := r.locks[at]
			if !e.renews {
				return nil, errors.New("a frame renews a lock that has no deadline")
			}
			e.renewed, e.renewals = f.At, e.renewals+i+1
		}
	}
	r.before = r.locks
	if err := r.replace(f); err != nil {
		return nil, err
	}
	r.at, r.applied = f.At, *f
	if f.State != nil {
		r.servers = *f.State
	}
	return f.resolved(was, r.locks)
}

// check verifies that the frame fits the state.
func (r *segmentReader) check(f *frame) error {
	err := f.Gone.check(len(r.locks))
	for _, all := range f.Renewed {
		err = errors.Join(err, all.check(len(r.locks)))
	}
	if len(r.locks)+len(f.Locks) > maxLocks {
		err = errors.New("a frame has too many locks")
	}
	for i := range f.Locks {
		f.Locks[i] = mapLock(f.Locks[i], unescapeText, unescapeText)
		if i > 0 && f.Locks[i-1].ID().Compare(f.Locks[i].ID()) >= 0 {
			err = errors.New("the locks of a frame are out of order")
		}
	}
	return err
}

// replace removes the locks that are gone, and adds those that are new or changed.
func (r *segmentReader) replace(f *frame) error {
	if len(f.Gone)+len(f.Locks) == 0 {
		return nil
	}
	old, gone, next := r.locks, f.Gone, 0
	all := r.spare[:0]
	keepUntil := func(end int) {
		for len(gone) > 0 && gone[0] < end {
			if gone[0] >= next {
				all = append(all, old[next:gone[0]]...)
				next, r.size = gone[0]+1, r.size-old[gone[0]].size
			}
			gone = gone[1:]
		}
		all = append(all, old[min(next, end):end]...)
		next = max(next, end)
	}
	for i := range f.Locks {
		at, changed := findEntry(r.locks, f.Locks[i].ID())
		keepUntil(at)
		e := newLockEntry(f.Locks[i])
		all, r.size = append(all, e), r.size+e.size
		if changed {
			next, r.size = at+1, r.size-old[at].size
		}
	}
	keepUntil(len(old))
	r.locks, r.spare = all, old
	if r.size > r.lines.maxState {
		return errTooLarge
	}
	return nil
}

// findEntry returns the position of a lock in a list.
func findEntry(locks []*lockEntry, id keyspace.ID) (int, bool) {
	return slices.BinarySearchFunc(locks, id, func(e *lockEntry, id keyspace.ID) int { return e.lock.ID().Compare(id) })
}

// snapshot returns the state without events.
func (r *segmentReader) snapshot() keyspace.Snapshot {
	var locks []*keyspace.Lock
	if len(r.locks) > 0 {
		locks = make([]*keyspace.Lock, len(r.locks))
	}
	for i, e := range r.locks {
		locks[i] = e.current()
	}
	s := r.servers
	s.At, s.Locks = r.at, locks
	return s
}

// resolved returns the events with what they refer to: was is the lock of each before the frame, locks are all after it.
func (f *frame) resolved(was []keyspace.Lock, locks []*lockEntry) ([]keyspace.Event, error) {
	if len(f.Events) == 0 {
		return nil, nil
	}
	all := make([]keyspace.Event, len(f.Events))
	for i := range f.Events {
		in, out := &f.Events[i], &all[i]
		*out = keyspace.Event{At: in.At, Kind: in.Kind, Held: in.Held, Announced: in.Announced, Possible: in.Possible, Lock: was[i]}
		if in.At.IsZero() {
			out.At = f.At
		}
		if in.Lock != nil {
			out.Lock = mapLock(*in.Lock, unescapeText, unescapeText)
		}
		if in.After != nil {
			l, err := lockAt(locks, *in.After)
			if err != nil {
				return nil, err
			}
			out.Lock = l
		}
		out.Holder = numbered(out.Lock.Holders, in.HolderNo, numbered(was[i].Holders, in.PrevHolderNo, keyspace.Holder{}))
		out.Waiter = numbered(out.Lock.Waiters, in.WaiterNo, numbered(was[i].Waiters, in.PrevWaiterNo, keyspace.Waiter{}))
		if in.Holder != nil {
			out.Holder = mapLock(keyspace.Lock{Holders: []keyspace.Holder{*in.Holder}}, unescapeText, unescapeText).Holders[0]
		}
		if in.Waiter != nil {
			out.Waiter = *in.Waiter
			out.Waiter.ID = unescapeText(out.Waiter.ID)
		}
	}
	return all, nil
}

// lockAt returns the lock at a position.
func lockAt(locks []*lockEntry, at int) (keyspace.Lock, error) {
	if at < 0 || at >= len(locks) {
		return keyspace.Lock{}, fmt.Errorf("an event names lock %d of %d", at, len(locks))
	}
	return *locks[at].current(), nil
}

// numbered returns element no of a list, counted from 1, or other if there is none.
func numbered[T any](all []T, no int, other T) T {
	if no < 1 || no > len(all) {
		return other
	}
	return all[no-1]
}
