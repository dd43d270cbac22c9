package recording

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// churn makes snapshots of locks that change at random, and the events between them.
type churn struct {
	*rand.Rand
	at   time.Time
	last keyspace.Snapshot
	n    int // number of tokens
}

func newChurn(seed uint64) *churn {
	return &churn{Rand: rand.New(rand.NewPCG(seed, 2)), at: begin}
}

// run returns the next n snapshots.
func (c *churn) run(n int, later time.Duration, keys int) (all []keyspace.Snapshot) {
	for range n {
		all = append(all, c.next(later, keys))
	}
	return all
}

// next returns the snapshot of some time later.
func (c *churn) next(later time.Duration, keys int) keyspace.Snapshot {
	c.at = c.at.Add(later)
	s := keyspace.Snapshot{At: c.at, Complete: true, Watch: keyspace.WatchStatus{Mode: keyspace.Push, Lag: time.Duration(c.IntN(5))}}
	s.Server = keyspace.Server{Version: "7.0.15", Uptime: c.at.Sub(begin), Blocked: int64(c.IntN(3))}
	s.Nodes = []keyspace.Node{{Server: s.Server, Up: c.IntN(50) > 0, Ping: time.Duration(c.IntN(9))}}
	known := make(map[keyspace.ID]keyspace.Lock)
	for _, l := range c.last.Locks {
		known[l.ID()] = *l
	}
	for i := range keys {
		l := keyspace.Lock{Key: fmt.Sprintf("lock:%03d\xff", i), DB: i % 2, Node: "127.0.0.1:6379"}
		was, ok := known[l.ID()]
		if l = c.changed(l, was, ok); l.Kind != "" {
			s.Locks = append(s.Locks, &l)
		}
	}
	slices.SortFunc(s.Locks, func(a, b *keyspace.Lock) int { return a.ID().Compare(b.ID()) })
	s = keyspace.CarryOver(c.last, s)
	s.Events = keyspace.Diff(c.last, s)
	c.last = s
	return s
}

// changed returns the next state of a lock; the zero lock if it is gone.
func (c *churn) changed(l, was keyspace.Lock, known bool) keyspace.Lock {
	move := c.IntN(20)
	switch {
	case move == 0 && known, move > 4 && !known:
		return keyspace.Lock{}
	case move <= 4 && !known, move == 1:
		l.Kind, l.Confidence, l.Format = keyspace.Mutex, keyspace.Certain, "any"
		l.Expires = c.at.Add(time.Duration(1+c.IntN(60)) * time.Second / 2)
		for range 1 + c.IntN(3)/2 {
			l.Holders = append(l.Holders, c.holder(l.Expires))
		}
		if c.IntN(4) == 0 {
			l.Waiters = []keyspace.Waiter{{ID: c.token(), Expires: l.Expires}}
		}
		if c.IntN(4) == 0 {
			l.Votes = []keyspace.Vote{{Node: "a", Token: l.Holders[0].ID, Expires: l.Expires.Add(time.Millisecond)}, {Node: "b", Unreachable: true}}
		}
		return l
	case move < 8:
		return c.renew(was)
	case move == 8:
		was.Fence++
	case move == 9 && len(was.Waiters) > 0:
		was.Waiters = []keyspace.Waiter{{ID: was.Waiters[0].ID, Expires: was.Waiters[0].Expires.Add(time.Second)}}
	}
	return was
}

// renew gives a lock the time to live that it had, and rarely another.
func (c *churn) renew(l keyspace.Lock) keyspace.Lock {
	from := renewedFrom(&l)
	ttl := l.Expires.Sub(from)
	if from.IsZero() || c.IntN(8) == 0 {
		ttl = time.Duration(1+c.IntN(60)) * time.Second
	}
	return withRenewal(l, l.Renewed, c.at.Add(ttl-time.Duration(c.IntN(20))*time.Millisecond))
}

func (c *churn) holder(expires time.Time) keyspace.Holder {
	return keyspace.Holder{ID: c.token(), Label: "pay\xff", Depth: 1, Expires: expires}
}

func (c *churn) token() string {
	c.n++
	return fmt.Sprintf("s3cretS3cret%d", c.n)
}

// writeSegment writes snapshots as one segment. The first has the full state.
func writeSegment(t testing.TB, all []keyspace.Snapshot, token func(string) string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := newSegmentWriter(&file, all[0], token, false)
	for _, s := range all[1:] {
		err = errors.Join(err, w.Add(s))
	}
	check.NoError(t, errors.Join(err, w.Close()))
	return file.Bytes()
}

func openSegment(t testing.TB, file []byte) *segmentReader {
	t.Helper()
	lines := check.Must(newSegmentLines(bytes.NewReader(file)))(t)
	return check.Must(newSegmentReader(lines))(t)
}

// sameToTheSecond compares two snapshots to the precision of a segment. A deadline may
// differ only if the lock was renewed.
func sameToTheSecond(t *testing.T, got, want keyspace.Snapshot) {
	t.Helper()
	if !got.At.Equal(want.At) || len(got.Locks) != len(want.Locks) || got.Complete != want.Complete || got.Watch.Mode != want.Watch.Mode {
		t.Fatalf("the snapshot of %v has %d locks, want that of %v with %d", got.At, len(got.Locks), want.At, len(want.Locks))
	}
	check.Require(t, reflect.DeepEqual(withoutFigures(stateOf(got)), withoutFigures(stateOf(want))) && want.Server.Uptime-got.Server.Uptime <= statePeriod+time.Second,
		"the servers are %+v, want %+v", got.Nodes, want.Nodes)
	for i := range want.Locks {
		sameLockToTheSecond(t, *got.Locks[i], *want.Locks[i])
	}
}

func sameLockToTheSecond(t *testing.T, got, want keyspace.Lock) {
	t.Helper()
	same := keyspace.SameLock(&got, &want)
	if want.Renewals > 0 {
		same = sameButRenewal(got, want)
	}
	check.Require(t, got.ID() == want.ID() && same, "a lock is\n%+v, want\n%+v", got, want)
}

// sameEvents compares events with those of a snapshot, except renewals.
func sameEvents(t *testing.T, got []keyspace.Event, s keyspace.Snapshot) {
	t.Helper()
	want := slices.DeleteFunc(slices.Clone(s.Events), func(e keyspace.Event) bool { return e.Kind == keyspace.Renewed })
	check.Require(t, len(got) == len(want), "%d events, want %d", len(got), len(want))
	for i, e := range want {
		g := got[i]
		if g.Kind != e.Kind || !g.At.Equal(e.At) || g.Held != e.Held || g.Holder.ID != e.Holder.ID || g.Holder.Label != e.Holder.Label || g.Waiter.ID != e.Waiter.ID {
			t.Fatalf("an event is\n%+v, want\n%+v", g, e)
		}
		check.Require(t, g.Holder.Expires.Sub(e.Holder.Expires).Abs() <= renewalSlack && g.Holder.Since.Equal(e.Holder.Since),
			"the holder of an event is\n%+v, want\n%+v", g.Holder, e.Holder)
		sameLockToTheSecond(t, g.Lock, e.Lock)
	}
}

// A renewal is one position: a whole lock in its place would not fit in the budget.
func TestARenewalIsAPosition(t *testing.T) {
	c := newChurn(1)
	first := keyspace.Snapshot{At: c.at}
	for i := range 100 {
		expires := c.at.Add(30 * time.Second)
		l := keyspace.Lock{Key: fmt.Sprintf("lock:%03d", i), Kind: keyspace.Mutex, Expires: expires, Holders: []keyspace.Holder{c.holder(expires)}}
		l.Holders[0].Since = c.at
		first.Locks = append(first.Locks, &l)
	}
	all := []keyspace.Snapshot{first}
	for i := range 30 {
		s := keyspace.Snapshot{At: first.At.Add(time.Duration(1+i) * time.Second), Locks: slices.Clone(all[i].Locks)}
		for j := i % 10; j < 100; j += 10 {
			l := withRenewal(*s.Locks[j], s.At.Add(-300*time.Millisecond), s.At.Add(30*time.Second-300*time.Millisecond))
			l.Renewals++
			s.Locks[j] = &l
		}
		all = append(all, s)
	}
	lines := strings.Split(string(unzip(t, writeSegment(t, all, nil))), "\n")
	for _, line := range lines[len(lines)-30:] {
		check.Require(t, !strings.Contains(line, `"key"`), "a renewal is %s", line)
	}
}

// A deadline that moves by less than two reads of one deadline differ is no renewal. After many
// of them the recorded deadline must still be right.
func TestADeadlineThatCreepsIsFollowed(t *testing.T) {
	s := keyspace.Snapshot{At: begin, Locks: []*keyspace.Lock{{Key: "a", Expires: begin.Add(time.Hour), Holders: []keyspace.Holder{{ID: "x"}}}}}
	all := []keyspace.Snapshot{s}
	for range 100 {
		s.At, s.Locks = s.At.Add(time.Second), slices.Clone(s.Locks)
		l := *s.Locks[0]
		l.Expires = l.Expires.Add(20 * time.Millisecond)
		s.Locks[0] = &l
		all = append(all, s)
	}
	r := openSegment(t, writeSegment(t, all, nil))
	for _, want := range all {
		check.Must(r.step(false))(t)
		d := r.snapshot().Locks[0].Expires.Sub(want.Locks[0].Expires).Abs()
		check.Require(t, d <= 2*keyspace.DeadlineJitter, "the deadline is wrong by %v", d)
	}
}

// The figures of the servers change with every snapshot, and would make every frame large.
func TestFiguresAloneAreNotInEveryFrame(t *testing.T) {
	var s keyspace.Snapshot
	n := 0
	check.Fill(reflect.ValueOf(&s.Server).Elem(), &n)
	check.Fill(reflect.ValueOf(&s.Nodes).Elem(), &n)
	check.Fill(reflect.ValueOf(&s.Cost).Elem(), &n)
	s.At = begin
	all := []keyspace.Snapshot{s}
	for i := range 60 {
		s.At, s.Nodes = s.At.Add(time.Second), slices.Clone(s.Nodes)
		s.Server.Uptime++
		s.Cost.Scanned++
		node := reflect.ValueOf(&s.Nodes[0]).Elem()
		for j := range node.NumField() {
			if f := node.Field(j); f.CanInt() {
				f.SetInt(int64(i))
			} else if f.Type() == reflect.TypeFor[time.Time]() {
				f.Set(reflect.ValueOf(s.At))
			}
		}
		all = append(all, s)
	}
	n = strings.Count(string(unzip(t, writeSegment(t, all, nil))), `"state"`)
	check.True(t, n == 7, "%d of 61 frames have figures, want one per %v", n, statePeriod)
	check.True(t, all[0].Nodes[1].Ping != 0, "the snapshot was changed")
}

// A reader must not need much memory for a small file.
func TestALineThatNeedsMuchMemoryIsDamage(t *testing.T) {
	testtier.Long(t, "it reads lines of many MB")
	header := `{"segment":2,"at":"2026-01-01T00:00:00Z","lock_count":%d}` + "\n"
	frame := `{"at":"2026-01-01T00:00:00Z","locks":[`
	for name, text := range map[string]string{
		"a long line":  fmt.Sprintf(header, 0) + strings.Repeat("a", maxLine+1),
		"many objects": fmt.Sprintf(header, 0) + frame + strings.Repeat("{},", maxObjects) + "{}]}\n",
		"many locks":   fmt.Sprintf(header, maxLocks+1),
	} {
		lines := linesOf(strings.NewReader(text))
		lines.unchecked = true
		_, err := newSegmentReader(lines)
		check.True(t, err != nil && !endOfSegment(err), "%s: the error is %v", name, err)
	}
}

// Each line of this segment is small; together they are not, in the full state or over
// several frames.
func TestASegmentWhoseLocksNeedMuchMemoryIsDamage(t *testing.T) {
	testtier.Long(t, "it reads lines of many MB")
	t.Parallel()
	const at, holders = `"2026-01-01T00:00:00Z"`, 1500
	var locks []string
	for i := range 100 {
		locks = append(locks, fmt.Sprintf(`{"key":"%03d","holders":[{}%s]}`, i, strings.Repeat(",{}", holders-1)))
	}
	state := fmt.Sprintf(`{"segment":2,"at":%s,"lock_count":%d}`+"\n%s\n{\"at\":%s}\n", at, len(locks), strings.Join(locks, "\n"), at)
	frames := fmt.Sprintf(`{"segment":2,"at":%s,"lock_count":0}`+"\n{\"at\":%s}\n", at, at)
	changes := frames // of one lock that is changed and gone
	for _, lock := range locks {
		frames += fmt.Sprintf(`{"at":%s,"locks":[%s]}`+"\n", at, lock)
		changes += strings.Repeat(fmt.Sprintf(`{"at":%s,"locks":[%s]}`+"\n", at, locks[0]), 2) + fmt.Sprintf(`{"at":%s,"gone":[0]}`+"\n", at)
	}
	const half = 50 * holders * 200 // bytes
	for name, text := range map[string]string{"the full state": state, "frames": frames, "changes": changes} {
		read := func(limit int) (err error) {
			lines := linesOf(strings.NewReader(text))
			lines.unchecked, lines.maxState = true, limit
			r, err := newSegmentReader(lines)
			for err == nil {
				_, err = r.step(true)
			}
			return err
		}
		err := read(map[bool]int{false: maxState, true: half}[name == "changes"])
		check.True(t, endOfSegment(err), "%s: %v", name, err)
		if name != "changes" {
			check.ErrorIs(t, read(half), errTooLarge, "%s: the error of locks of twice the limit is", name)
		}
	}
}

// unzip returns the text of a segment.
func unzip(t testing.TB, file []byte) []byte {
	t.Helper()
	zip := check.Must(gzip.NewReader(bytes.NewReader(file)))(t)
	return check.Must(io.ReadAll(zip))(t)
}

// A reader must see every field of a snapshot that has a name in JSON.
func TestASegmentHasEveryField(t *testing.T) {
	var want keyspace.Snapshot
	n := 0
	check.Fill(reflect.ValueOf(&want).Elem(), &n)
	want.Locks[0].Node, want.Locks[1].Node = "a", "b" // in their order
	other := keyspace.Snapshot{At: want.At.Add(-time.Second)}
	for name, all := range map[string][]keyspace.Snapshot{"the full state": {want}, "a frame": {other, want}} {
		r := openSegment(t, writeSegment(t, all, nil))
		var events []keyspace.Event
		for range all {
			var err error
			if events, err = r.step(true); err != nil {
				t.Fatal(err)
			}
		}
		got := r.snapshot()
		got.Events, got.Notices = events, want.Notices
		check.True(t, reflect.DeepEqual(got, want), "%s: got\n%+v\nwant\n%+v", name, got, want)
	}
}

func TestASegmentThatIsCutOffIsGoodToItsLastFrame(t *testing.T) {
	t.Parallel()
	all := newChurn(3).run(40, time.Second, 60)
	var file bytes.Buffer
	w, err := newSegmentWriter(&file, all[0], nil, false)
	check.NoError(t, err)
	for _, s := range all[1:] {
		size := file.Len()
		check.NoError(t, w.Add(s))
		for _, end := range []int{size, size + (file.Len()-size)/2, file.Len()} {
			last, damage, err := lastFrame(bytes.NewReader(file.Bytes()[:end]))
			if want := s.At; err != nil || !endOfSegment(damage) || end == file.Len() && !last.Equal(want) || last.Before(want.Add(-time.Second)) {
				t.Fatalf("with %d of %d bytes the last frame is of %v, want %v: %v, %v", end, file.Len(), last, want, damage, err)
			}
		}
	}
}

// No frame after the damage may be applied.
func TestAFlippedBitIsNoticed(t *testing.T) {
	t.Parallel()
	all := newChurn(4).run(60, time.Second, 30)
	text := unzip(t, writeSegment(t, all, nil))
	state := bytes.Index(text, []byte(framePrefix))
	for i := state; i < len(text); i += testtier.Size(7499, 1499, 1499) {
		bad := flipped(text, i)
		r, err := newSegmentReader(linesOf(bytes.NewReader(bad)))
		if err != nil {
			continue
		}
		frames := 0
		for {
			if _, err := r.step(true); err != nil {
				break
			}
			sameToTheSecond(t, r.snapshot(), all[frames])
			frames++
		}
		check.Require(t, i >= len(text)-100 || !errors.Is(r.end, io.EOF),
			"byte %d of %d is wrong, and it ends with %v after %d frames", i, len(text), r.end, frames)
	}
}
