package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// visitor is a Visitor that gets a state as a whole frame.
type visitor func(d keyspace.Delta, whole bool)

func (v visitor) Add(d keyspace.Delta)      { v(d, false) }
func (v visitor) State(s keyspace.Snapshot) { v(keyspace.Delta{Snapshot: s}, true) }

// A walk shows the same events, notices and locks as the snapshots that were recorded, with a
// gap and several segments in between. The lock of a hold that ends has all its renewals.
func TestAWalkShowsEveryFrame(t *testing.T) {
	dir := t.TempDir()
	w, reports := newDirWriter(t, dir, DirOptions{Tokens: true})
	c := newChurn(7)
	c.next(time.Second, 40) // the first frame has all locks
	var all []keyspace.Snapshot
	for i := range 120 {
		later := time.Second
		if i%40 == 39 {
			later = segmentSpan + time.Minute
		}
		s := c.next(later, 40)
		s.Notices = []keyspace.Notice{{At: s.At, Kind: keyspace.ServerLost, Text: s.At.String()}}
		w.Add(s)
		all = append(all, s)
	}
	if err := w.Close(); err != nil || reports() != "" {
		t.Fatal(err, reports())
	}
	r := openDir(t, dir)
	check.Require(t, len(r.segments) >= 3, "%d segments are too few for this test", len(r.segments))
	const first = 20
	var events, want []keyspace.Event
	notices, ends := 0, 0
	locks := make(map[keyspace.ID]keyspace.Lock)
	var last keyspace.Delta
	err := r.Walk(all[first].At, all[len(all)-1].At, visitor(func(d keyspace.Delta, whole bool) {
		check.True(t, !d.At.Before(last.At), "the frame of %v is after that of %v", d.At, last.At)
		for _, e := range d.Events {
			events = append(events, e)
			if e.Kind.Ends() {
				ends++
			}
		}
		if whole {
			clear(locks)
		}
		for _, id := range d.Gone {
			delete(locks, id)
		}
		for _, l := range d.Locks {
			locks[l.ID()] = *l
		}
		notices += len(d.Notices)
		last = d
	}), nil)
	check.Require(t, err == nil && r.Damage() == nil, "%v, %v", err, r.Damage())
	for _, s := range all[first+1:] {
		want = append(want, slices.DeleteFunc(slices.Clone(s.Events), func(e keyspace.Event) bool { return e.Kind == keyspace.Renewed })...)
	}
	check.Require(t, len(events) == len(want) && notices == len(all)-first-1 && ends != 0,
		"%d events of %d, %d notices of %d, %d ends", len(events), len(want), notices, len(all)-first-1, ends)
	for i := range want {
		check.Require(t, events[i].Kind == want[i].Kind && events[i].At.Equal(want[i].At) && events[i].Lock.Key == want[i].Lock.Key,
			"event %d is %v, want %v", i, events[i], want[i])
	}
	end := all[len(all)-1]
	check.Require(t, len(last.Locks) == len(end.Locks) && len(locks) == len(end.Locks),
		"the last frame has %d locks, and the walk leaves %d, want %d", len(last.Locks), len(locks), len(end.Locks))
	for i, l := range end.Locks {
		sameLockToTheSecond(t, *last.Locks[i], *l)
	}
}

// The frame before the end of a hold has its renewals, which a recording only counts.
func TestAWalkKnowsTheRenewalsOfAHoldThatEnds(t *testing.T) {
	dir := t.TempDir()
	w, _ := newDirWriter(t, dir, DirOptions{})
	l := keyspace.Lock{Key: "lock:a", Kind: keyspace.Mutex, Confidence: keyspace.Certain, Expires: begin.Add(30 * time.Second)}
	l.Holders = []keyspace.Holder{{ID: "s3cretS3cret", Depth: 1, Since: begin, Expires: l.Expires}}
	at := begin
	for i := range 30 {
		if i > 0 && i%10 == 0 {
			l = withRenewal(l, at, at.Add(30*time.Second))
			l.Renewals++
		}
		now := l
		w.Add(keyspace.Snapshot{At: at, Complete: true, Locks: []*keyspace.Lock{&now}})
		at = at.Add(time.Second)
	}
	next := l
	next.Holders = []keyspace.Holder{{ID: "other", Depth: 1, Since: at, Expires: at.Add(30 * time.Second)}}
	next.Expires, next.Observed = next.Holders[0].Expires, keyspace.Observed{}
	ended := keyspace.Event{At: at, Kind: keyspace.Released, Lock: next, Holder: l.Holders[0]}
	w.Add(keyspace.Snapshot{At: at, Complete: true, Locks: []*keyspace.Lock{&next}, Events: []keyspace.Event{ended}})
	check.NoError(t, w.Close())
	renewals := -1
	err := openDir(t, dir).Walk(begin, at, visitor(func(d keyspace.Delta, _ bool) {
		if d.At.Before(at) && d.At.After(begin) {
			for _, l := range d.Locks {
				renewals = l.Renewals
			}
		}
	}), nil)
	check.True(t, err == nil && renewals == 2, "%d renewals, want 2; %v", renewals, err)
}

// counter is an Indexer that counts frames.
type counter struct{ n int }

func (c *counter) Add(keyspace.Delta)      { c.n++ }
func (c *counter) State(keyspace.Snapshot) { c.n++ }
func (c *counter) Index() []byte           { defer func() { c.n = 0 }(); return fmt.Append(nil, c.n) }

// An index is used unless it is damaged or the segment before it is another one, and it is
// deleted with its segment.
func TestAnIndexBelongsToItsSegment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, _ := newDirWriter(t, dir, DirOptions{Keep: 100 * time.Minute, Index: func() Indexer { return &counter{} }})
	c := newChurn(3)
	for range 200 {
		w.Add(c.next(time.Minute, 4))
	}
	check.NoError(t, w.Close())
	segments := segmentsOf(t, dir)
	indexes, _ := filepath.Glob(filepath.Join(dir, "*"+indexSuffix))
	check.Require(t, len(segments) >= 6 && len(indexes) == len(segments)-1,
		"%d indexes of %d segments", len(indexes), len(segments)) // the last segment has none
	loaded := func() (n int) {
		r := openDir(t, dir)
		first, last := r.Span()
		load := func(index []byte) func() { // several at the same time
			frames, err := strconv.Atoi(string(index))
			return func() { n++; check.True(t, err == nil && frames >= 10, "%v, %v", frames, err) }
		}
		check.NoError(t, r.Walk(first, last, &counter{}, load))
		return n
	}
	want := len(segments) - 2 // the first is always read
	check.Equal(t, loaded(), want, "indexes were used")
	// A segment that cannot be read to its end has no index.
	part := check.Must(os.ReadFile(filepath.Join(dir, filepath.Base(segments[1]))))(t)
	damaged := &indexing{dir: t.TempDir(), indexer: &counter{}, before: "another"}
	check.NoError(t, os.WriteFile(filepath.Join(damaged.dir, filepath.Base(segments[1])), flipped(part, len(part)/2), 0o600))
	n, err := damaged.write(filepath.Base(segments[1]))
	check.True(t, err != nil && n == 0, "a damaged segment has an index of %d bytes, %v", n, err)
	text := check.Must(os.ReadFile(indexes[2]))(t)
	check.NoError(t, os.WriteFile(indexes[2], flipped(text, len(text)-6), 0o600))
	check.Equal(t, loaded(), want-1, "indexes were used beside a damaged one")
	check.NoError(t, os.Remove(filepath.Join(dir, filepath.Base(segments[3]))))
	check.Equal(t, loaded(), want-3, "indexes were used without a segment")
}
