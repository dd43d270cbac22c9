package recording

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"locktop/keyspace"
)

// segmentWriter writes one segment. After an error it must not be used again.
type segmentWriter struct {
	out      *countingWriter
	buffer   *bufio.Writer
	zip      *gzip.Writer
	token    func(string) string // applied to tokens; nil: none
	exact    bool                // write each renewal and each figure
	sum      uint32              // of all lines
	unpacked int64               // bytes of all lines
	state    int64               // bytes of the full state, compressed

	stateUnpacked int64

	last    keyspace.Snapshot // of the last frame
	known   []knownLock       // of the locks of last
	servers keyspace.Snapshot // as written last, see stateOf
	stateAt time.Time         // time of servers
}

// countingWriter counts the bytes that it writes.
type countingWriter struct {
	io.Writer
	n int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.n += int64(n)
	return n, err
}

// newSegmentWriter writes the full state of s. The function token is applied to each token; nil means that tokens are written.
func newSegmentWriter(to io.Writer, s keyspace.Snapshot, token func(string) string, exact bool) (*segmentWriter, error) {
	out := &countingWriter{Writer: to}
	w := &segmentWriter{out: out, buffer: bufio.NewWriterSize(out, 64<<10), token: token, exact: exact}
	w.zip = zips.Get().(*gzip.Writer)
	w.zip.Reset(w.buffer)
	w.zip.Extra = binary.BigEndian.AppendUint64(append([]byte(segmentID), 8, 0), uint64(s.At.UnixNano())) // see segmentStart
	if err := w.writeLine(segmentHeader{segmentVersion, s.At, len(s.Locks)}); err != nil {
		return nil, err
	}
	w.known = make([]knownLock, 0, len(s.Locks))
	for _, l := range s.Locks {
		if err := w.writeLine(w.text(*l)); err != nil {
			return nil, err
		}
		w.known = append(w.known, exactly(l))
	}
	w.last = s
	w.last.Events, w.last.Notices = nil, nil
	w.servers, w.stateAt = stateOf(s), s.At
	f := frame{At: s.At, State: &w.servers, Notices: s.Notices}
	w.addEvents(&f, s.Events, keyspace.Snapshot{}, nil)
	line, err := encodeLine(f)
	if len(line) > maxLine/2 {
		f.Events, f.Omitted = nil, len(s.Events)
		line, err = encodeLine(f)
	}
	if err == nil {
		err = w.writeFrame(line)
	}
	w.state, w.stateUnpacked = out.n, w.unpacked
	return w, err
}

// Add writes the difference between the last snapshot and s, and flushes it.
func (w *segmentWriter) Add(s keyspace.Snapshot) error {
	before, known := w.last, w.known
	f := frame{At: s.At, Notices: s.Notices}
	w.last = s
	w.last.Events, w.last.Notices = nil, nil
	if was := before.Locks; len(was) != len(s.Locks) || len(was) > 0 && &was[0] != &s.Locks[0] { // else they share their memory
		w.known = make([]knownLock, 0, len(s.Locks))
		w.addLocks(&f, before.Locks, known)
	}
	w.addEvents(&f, s.Events, before, known)
	state := stateOf(s)
	if !reflect.DeepEqual(withoutFigures(state), withoutFigures(w.servers)) || (w.exact || s.At.Sub(w.stateAt) >= statePeriod) && !reflect.DeepEqual(state, w.servers) {
		w.servers, w.stateAt = state, s.At
		f.State = &w.servers
	}
	line, err := encodeLine(f)
	if err != nil {
		return err
	}
	if len(line) > maxLine/2 {
		return errLargeFrame
	}
	return w.writeFrame(line)
}

// errLargeFrame means that a frame is too large for a line: the full state of a new
// segment is not. Nothing was written.
var errLargeFrame = errors.New("too much has changed for one frame")

// Close ends the segment, which must not be used again.
func (w *segmentWriter) Close() error {
	if err := w.zip.Close(); err != nil {
		return err
	}
	zips.Put(w.zip)
	w.zip = nil
	return w.buffer.Flush()
}

// zips has the compressors of earlier segments. A new one takes 800 KB.
var zips = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// full reports whether the frames are larger than a new full state is worth, or than limit.
func (w *segmentWriter) full(limit int64) bool {
	frames := w.out.n - w.state
	return frames > max(segmentSize, 2*w.state) || frames > max(limit, w.state) || w.unpacked-w.stateUnpacked > segmentUnpacked
}

func (w *segmentWriter) writeLine(v any) error {
	line, err := encodeLine(v)
	if err != nil {
		return err
	}
	return w.write(line)
}

func (w *segmentWriter) write(line []byte) error {
	w.sum = crc32.Update(w.sum, crc32.IEEETable, line)
	w.unpacked += int64(len(line))
	_, err := w.zip.Write(line)
	return err
}

// writeFrame writes the line of a frame so that it can be read even if the process ends now.
func (w *segmentWriter) writeFrame(line []byte) error {
	line = bytes.TrimSuffix(line, []byte("}\n"))
	sum := crc32.Update(w.sum, crc32.IEEETable, line) // it continues that of the stream before
	line = strconv.AppendUint(append(line, crcField...), uint64(sum), 10)
	if err := w.write(append(line, "}\n"...)); err != nil {
		return err
	}
	if err := w.zip.Flush(); err != nil {
		return err
	}
	return w.buffer.Flush()
}

// text returns a lock as it is written.
func (w *segmentWriter) text(l keyspace.Lock) keyspace.Lock {
	l = mapLock(l, escapeText, w.secret)
	if w.token != nil {
		l.Evidence = nil // it may quote a token
	}
	return l
}

// secret returns a token as it is written.
func (w *segmentWriter) secret(token string) string {
	if w.token != nil {
		token = w.token(token)
	}
	return escapeText(token)
}

// knownLock is what a reader knows of the deadline of a lock.
type knownLock struct {
	expires time.Time
	from    time.Time // the last renewal, or the begin of the hold; zero = unknown
	renewed bool      // expires was restored from a renewal
}

// exactly returns what a reader knows of a lock that was written whole.
func exactly(l *keyspace.Lock) knownLock {
	return knownLock{expires: l.Expires, from: renewedFrom(l)}
}

// lock returns a lock as a reader knows it.
func (k knownLock) lock(l keyspace.Lock) keyspace.Lock {
	if !k.renewed {
		return l
	}
	return withRenewal(l, k.from, k.expires)
}

// same reports whether l is the lock that a reader knows, restored.
func (k knownLock) same(l, restored keyspace.Lock) bool {
	if k.renewed {
		return sameButRenewal(l, restored)
	}
	return keyspace.SameLock(&l, &restored)
}

// after returns what a reader knows after a frame at the time at that has only a number of
// renewals for the lock; ok is false if the frame must have the whole lock.
func (k knownLock) after(was, now *keyspace.Lock, at time.Time) (next knownLock, renewals int, ok bool) {
	if keyspace.SameLock(was, now) {
		slack := 2 * keyspace.DeadlineJitter
		if k.renewed {
			slack = renewalSlack
		}
		return k, 0, now.Expires.Sub(k.expires).Abs() <= slack
	}
	renewals = now.Renewals - was.Renewals
	if renewals < 1 || renewals > maxRenewals || k.from.IsZero() || len(now.Holders) != 1 {
		return k, 0, false
	}
	next = knownLock{expires: at.Add(k.expires.Sub(k.from)), from: at, renewed: true}
	restored := next.lock(*was)
	restored.Renewals = now.Renewals
	return next, renewals, next.same(*now, restored)
}

// addLocks adds the difference between two lists of locks to a frame, and fills w.known.
func (w *segmentWriter) addLocks(f *frame, old []*keyspace.Lock, known []knownLock) {
	at := 0
	for was, now := range keyspace.Pairs(old, w.last.Locks) {
		switch {
		case was == nil:
			w.addLock(f, now)
			continue
		case now == nil:
			f.Gone = append(f.Gone, at)
		default:
			if next, renewals, ok := known[at].after(was, now, f.At); ok && !(w.exact && renewals > 0) {
				w.known = append(w.known, next)
				f.renew(at, renewals)
			} else {
				w.addLock(f, now)
			}
		}
		at++
	}
}

// addLock adds a whole lock.
func (w *segmentWriter) addLock(f *frame, l *keyspace.Lock) {
	f.Locks = append(f.Locks, w.text(*l))
	w.known = append(w.known, exactly(l))
}

// renew adds a number of renewals of the lock at a position.
func (f *frame) renew(position, renewals int) {
	if renewals == 0 {
		return
	}
	for len(f.Renewed) < renewals {
		f.Renewed = append(f.Renewed, positions{})
	}
	f.Renewed[renewals-1] = append(f.Renewed[renewals-1], position)
}

// addEvents adds the events to a frame. Renewals are only counted in the lock, unless the
// segment is exact.
func (w *segmentWriter) addEvents(f *frame, events []keyspace.Event, before keyspace.Snapshot, known []knownLock) {
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == keyspace.Renewed && !w.exact:
		case len(f.Events) >= maxEvents:
			f.Omitted++
		default:
			f.Events = append(f.Events, w.event(f.At, e, before, known))
		}
	}
}

// event returns an event with references to the locks that a reader knows. before and
// known are the state before the frame.
func (w *segmentWriter) event(at time.Time, e *keyspace.Event, before keyspace.Snapshot, known []knownLock) frameEvent {
	out := frameEvent{Kind: e.Kind, Held: e.Held, Announced: e.Announced, Possible: e.Possible}
	if !e.At.Equal(at) {
		out.At = e.At
	}
	var knownNow, knownWas knownLock
	var after, earlier keyspace.Lock // as a reader knows the lock of the event; zero: there is none
	now, isNow := keyspace.FindLock(w.last.Locks, e.Lock.ID())
	if isNow {
		knownNow = w.known[now]
		after = knownNow.lock(*w.last.Locks[now])
	}
	was, isWas := keyspace.FindLock(before.Locks, e.Lock.ID())
	if isWas {
		knownWas = known[was]
		earlier = knownWas.lock(*before.Locks[was])
	}
	switch {
	case isNow && knownNow.same(e.Lock, after):
		out.After = &now
	case isWas && knownWas.same(e.Lock, earlier):
		out.Before = &was
	default:
		out.Lock = new(w.text(e.Lock))
	}
	var whole bool
	holder := func(h keyspace.Holder) keyspace.Lock { return keyspace.Lock{Holders: []keyspace.Holder{h}} }
	renewed := knownLock{renewed: knownWas.renewed || knownNow.renewed}
	if out.HolderNo, out.PrevHolderNo, whole = reference(e.Holder, e.Lock.Holders, earlier.Holders, renewed, holder); whole {
		out.Holder = &mapLock(holder(e.Holder), escapeText, w.secret).Holders[0]
	}
	waiter := func(one keyspace.Waiter) keyspace.Lock { return keyspace.Lock{Waiters: []keyspace.Waiter{one}} }
	if out.WaiterNo, out.PrevWaiterNo, whole = reference(e.Waiter, e.Lock.Waiters, earlier.Waiters, knownLock{}, waiter); whole {
		out.Waiter = &mapLock(waiter(e.Waiter), escapeText, w.secret).Waiters[0]
	}
	if out.PrevHolderNo+out.PrevWaiterNo > 0 {
		out.Before = &was
	}
	return out
}

// reference returns the number of a holder or of a waiter of an event in its lock, counted from 1, or else in the lock
// before the frame. whole reports that it is in none of them. lock returns a lock that has nothing else.
func reference[T comparable](of T, all, before []T, known knownLock, lock func(T) keyspace.Lock) (no, previous int, whole bool) {
	if of == *new(T) {
		return 0, 0, false
	}
	same := func(other T) bool { return known.same(lock(of), lock(other)) }
	if no = 1 + slices.IndexFunc(all, same); no == 0 {
		previous = 1 + slices.IndexFunc(before, same)
	}
	return no, previous, no+previous == 0
}
