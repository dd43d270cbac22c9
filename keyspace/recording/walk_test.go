package recording

import (
	"slices"
	"testing"
	"time"

	"locktop/keyspace"
)

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
	if len(r.segments) < 3 {
		t.Fatalf("%d segments are too few for this test", len(r.segments))
	}
	const first = 20
	var events, want []keyspace.Event
	notices, ends := 0, 0
	locks := make(map[keyspace.ID]keyspace.Lock)
	var last keyspace.Delta
	err := r.Walk(all[first].At, all[len(all)-1].At, func(d keyspace.Delta) {
		if d.At.Before(last.At) {
			t.Errorf("the frame of %v is after that of %v", d.At, last.At)
		}
		for _, e := range d.Events {
			events = append(events, e)
			if e.Kind.Ends() {
				ends++
			}
		}
		for _, id := range d.Gone {
			delete(locks, id)
		}
		for _, l := range d.Locks {
			locks[l.ID()] = *l
		}
		notices += len(d.Notices)
		last = d
	})
	if err != nil || r.Damage() != nil {
		t.Fatal(err, r.Damage())
	}
	for _, s := range all[first+1:] {
		want = append(want, slices.DeleteFunc(slices.Clone(s.Events), func(e keyspace.Event) bool { return e.Kind == keyspace.Renewed })...)
	}
	if len(events) != len(want) || notices != len(all)-first-1 || ends == 0 {
		t.Fatalf("%d events of %d, %d notices of %d, %d ends", len(events), len(want), notices, len(all)-first-1, ends)
	}
	for i := range want {
		if events[i].Kind != want[i].Kind || !events[i].At.Equal(want[i].At) || events[i].Lock.Key != want[i].Lock.Key {
			t.Fatalf("event %d is %v, want %v", i, events[i], want[i])
		}
	}
	end := all[len(all)-1]
	if len(last.Locks) != len(end.Locks) || len(locks) != len(end.Locks) {
		t.Fatalf("the last frame has %d locks, and the walk leaves %d, want %d", len(last.Locks), len(locks), len(end.Locks))
	}
	for i, l := range end.Locks {
		sameLockToTheSecond(t, *last.Locks[i], *l)
	}
}

// The frame before the end of a hold has its renewals, which a recording only counts.
func TestAWalkKnowsTheRenewalsOfAHoldThatEnds(t *testing.T) {
	dir := t.TempDir()
	w, _ := newDirWriter(t, dir, DirOptions{})
	l := keyspace.Lock{Key: "lock:a", Kind: keyspace.Mutex, Confidence: keyspace.Certain, Expires: begin.Add(30 * time.Second)}
	l.Holders = []keyspace.Holder{{ID: "secret", Count: 1, Since: begin, Expires: l.Expires}}
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
	next.Holders = []keyspace.Holder{{ID: "other", Count: 1, Since: at, Expires: at.Add(30 * time.Second)}}
	next.Expires, next.Observed = next.Holders[0].Expires, keyspace.Observed{}
	ended := keyspace.Event{At: at, Kind: keyspace.Released, Lock: next, Holder: l.Holders[0]}
	w.Add(keyspace.Snapshot{At: at, Complete: true, Locks: []*keyspace.Lock{&next}, Events: []keyspace.Event{ended}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	renewals := -1
	err := openDir(t, dir).Walk(begin, at, func(d keyspace.Delta) {
		if d.At.Before(at) && d.At.After(begin) {
			for _, l := range d.Locks {
				renewals = l.Renewals
			}
		}
	})
	if err != nil || renewals != 2 {
		t.Errorf("%d renewals, want 2; %v", renewals, err)
	}
}
