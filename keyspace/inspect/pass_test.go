package inspect

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestPagesFitWhatTheyTakeTheServer(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		count int64
		took  time.Duration
		want  int64
	}{
		{250, 500 * us, 250},  // unchanged
		{250, 0, 500},         // the clock does not advance
		{250, 10 * us, 500},   // at most doubled at once
		{250, 400 * us, 312},  // a little more
		{250, 1000 * us, 125}, // half
		{250, 9000 * us, 125}, // at most halved at once
		{800, 100 * us, 1000}, // at most 1000
		{1000, 10 * us, 1000},
		{60, 9000 * us, 50}, // at least 50
	} {
		check.Equal(t, nextCount(c.count, c.took), c.want, "after %d keys in %v the next page has", c.count, c.took)
	}
}

// A writer that adds keys as fast as the scan reads them would keep a pass from ending.
func TestAPassWithoutEndIsGivenUp(t *testing.T) {
	w := &cursor{keys: 100_000, pos: 42}
	pages, visited := 0, int64(0)
	for ; !w.done() && pages < 1000; pages++ {
		visited += w.advance(1000)
	}
	check.True(t, w.gaveUp && pages == 411, "after %d pages: given up=%v", pages, w.gaveUp)
	check.True(t, visited == w.keys, "it is said to have visited %d of %d keys", visited, w.keys)
	p := (scanPass{cursors: cursors{all: []cursor{*w}}, verified: true})
	check.True(t, p.done() && !p.complete(), "the pass should be done, and incomplete")
}

func TestACursorThatEndsEarlyHasVisitedEverything(t *testing.T) {
	w := &cursor{keys: 1000, pos: 7}
	visited := w.advance(250)
	w.pos = 0
	got := visited + w.advance(250)
	check.True(t, got == 1000 && w.done() && !w.gaveUp, "visited %d, done=%v", got, w.done())
}

// answers returns a read of a string with these replies.
func answers(value string, size, left int64) keyRead {
	clock := redis.NewTimeCmd(context.Background())
	clock.SetVal(start)
	return keyRead{
		candidate: &candidate{name: "lock:a", typ: "string"},
		clock:     clock,
		after:     clock,
		value:     redis.NewStringResult(value, nil),
		size:      redis.NewIntResult(size, nil),
		expiry:    redis.NewIntResult(left, nil),
	}
}

// A key may be created, deleted or changed between the commands that read it.
func TestOnlyAnswersThatFitTogetherAreAnEntry(t *testing.T) {
	for _, c := range []struct {
		name  string
		asked keyRead
		ok    bool
	}{
		{"held", answers("token", 5, 1000), true},
		{"held for ever", answers("token", 5, -1), true},
		{"empty, but there", answers("", 0, 1000), true},
		{"never there", answers("", 0, -2), false},
		{"gone in between", answers("token", 5, -2), false},
		{"gone even before its size", answers("token", 0, -2), false},
		{"came in between", answers("", 5, 1000), false},
		{"became another", answers("token", 9, 1000), false},
	} {
		e, ok := c.asked.result()
		check.True(t, ok == c.ok, "%s: taken for an entry: %v", c.name, ok)
		check.True(t, !ok || c.name != "held" || e.Expires.Equal(start.Add(time.Second)), "it expires at %v", e.Expires)
	}
}

func TestNamesThatDifferInNumbersAndIDsHaveOneShape(t *testing.T) {
	alike := [][]string{
		{"user:1", "user:4711", "user:5f0c9a4e", "user:cafe"},
		{"user:1:name", "user:22:name"},
		{"session:da39a3ee5e6b4b0d", "session:ffffffff"},
		{"user"}, {"users:1"}, {"user.1"}, {"user:1:orders"}, {"user:bob"}, {""}, {":"},
	}
	of := make(map[keyShape]int)
	for i, names := range alike {
		for _, name := range names {
			if known, ok := of[shapeOf(name)]; ok && known != i {
				t.Errorf("%q has the shape of %q", name, alike[known][0])
			} else if !ok && name != names[0] {
				t.Errorf("%q has not the shape of %q", name, names[0])
			}
			of[shapeOf(name)] = i
		}
	}
}

func TestAGuessIsGivenUpOnceItWasWrong(t *testing.T) {
	s := make(typeGuesses)
	s.learn(shapeOf("user:1"), "hash")
	check.Equal(t, s.guess(shapeOf("user:2")), "hash", "guessed")
	s.learn(shapeOf("user:3"), "string")
	s.learn(shapeOf("user:4"), "hash")
	check.Equal(t, s.guess(shapeOf("user:2")), "", "a guess after a wrong one")
}

func TestTheMemoryForNamesIsBounded(t *testing.T) {
	s := make(typeGuesses)
	for i := range 3 * maxShapes {
		s.learn(shapeOf(fmt.Sprintf("%x:name", i)+string(rune('g'+i%20))+word(i)), "string")
	}
	check.True(t, len(s) <= maxShapes, "%d shapes are remembered", len(s))
}

// word returns a word without digits.
func word(i int) string {
	w := "z"
	for ; i > 0; i /= 20 {
		w += string(rune('g' + i%20))
	}
	return w
}

func TestAFormatIsFoundByEachOfItsBeginningsAndByNoOther(t *testing.T) {
	x := newFormatIndex([]keyspace.Format{{
		Type:     "string",
		Prefixes: []string{"lock:", "{lock}:", "mutex:"},
		Probe:    func(string, string) keyspace.Confidence { return keyspace.Certain },
	}})
	for key, want := range map[string]keyspace.Confidence{
		"lock:a": keyspace.Certain, "{lock}:a": keyspace.Certain, "mutex:a": keyspace.Certain,
		"lock:": keyspace.No, "locks:a": keyspace.No, "a": keyspace.No, "": keyspace.No,
	} {
		check.Equal(t, x.bestProbe(key, "string", "", keyspace.Certain), want, "%q promises", key)
		check.Equal(t, x.needOf(key, "string") == needProbe, (want == keyspace.Certain), "%q is looked at", key)
	}
}

// aYearOn is a deadline in a year, in ms since 1970.
var aYearOn = time.Now().Add(365 * 24 * time.Hour).UnixMilli()

// longValue is the value of a lock that a probe does not read whole.
var longValue = "token:" + strings.Repeat("1", probeBytes)

// Where most keys are locks, a probe has the whole short value and its deadline: no further read is sent.
func TestAShortValueIsReadOnceWhereMostKeysAreLocks(t *testing.T) {
	t.Parallel()
	rdb, meter := realServer(t), new(Meter)
	const locks = 6_000
	pipe := rdb.Pipeline()
	for i := range locks {
		pipe.Set(t.Context(), fmt.Sprint("lock:", i), fmt.Sprint("token:", i), 0)
		pipe.PExpireAt(t.Context(), fmt.Sprint("lock:", i), time.UnixMilli(aYearOn+int64(i)))
	}
	pipe.Set(t.Context(), "lock:long", longValue, 0)
	check.Must(pipe.Exec(t.Context()))(t)
	s := NewScanner(rdb, ScanOptions{Formats: []keyspace.Format{anyString}, Budget: NewBudget(0.99), Meter: meter})
	snap := check.Must(s.Scan(t.Context()))(t)
	check.Equal(t, len(snap.Locks), locks+1, "locks")
	for _, l := range snap.Locks {
		if n := int64(0); l.Key != "lock:long" {
			_, _ = fmt.Sscanf(l.Key, "lock:%d", &n)
			late := l.Expires.Sub(time.UnixMilli(aYearOn + n))
			check.True(t, l.SoleHolder() == fmt.Sprint("token:", n) && late.Abs() <= keyspace.DeadlineJitter, "%s of %s ends %v late", l.Key, l.SoleHolder(), late)
		}
	}
	if sent := meter.Usage().Commands; !s.denied.has("pexpiretime") {
		check.True(t, sent["getrange"] > locks && sent["getrange"] < locks+locks/2, "%d values are read by %d commands", locks, sent["getrange"])
	}
}

// With very many locks, those that never expire are found first, whatever SCAN returns first.
func TestTheFirstPassReadsKeysWithoutATTLFirst(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	const locks, worst = manyLocks + 6_000, 20
	pipe := rdb.Pipeline()
	for i := range locks {
		ttl := time.Hour
		if i >= locks-worst {
			ttl = 0
		}
		pipe.Set(t.Context(), fmt.Sprint("lock:", i), longValue, ttl)
	}
	check.Must(pipe.Exec(t.Context()))(t)
	w := watch(t, rdb, ScanOptions{Formats: []keyspace.Format{anyString}, Budget: NewBudget(0.99)}) // a page at a time
	most := 0
	for !w.scan.complete {
		check.NoError(t, w.scanSome(t.Context(), time.Now()))
		p := w.scan.pass
		if len(p.deferred) == 0 || !p.cursors.done() {
			continue
		}
		found := 0
		for _, l := range w.Known().Locks {
			if l.Expires.IsZero() {
				found++
			}
		}
		check.True(t, len(w.locks.known) > manyLocks+worst+500, "while keys are deferred, %d locks are read: only those without a TTL", len(w.locks.known))
		check.Require(t, found == worst, "%d of %d locks without a TTL are found before the last of the others", found, worst)
		check.True(t, w.Known().Cost.Scanned < locks && !w.Known().Complete, "the pass is complete before all keys are read: %+v", w.Known().Cost)
		most = max(most, len(p.deferred))
	}
	check.True(t, most > 0, "no key was deferred")
	check.Equal(t, len(w.Known().Locks), locks, "locks")
}

// Most companions do not exist. A read of them would take one more round trip.
func TestAKeyThatDoesNotExistIsNotRead(t *testing.T) {
	t.Parallel()
	rdb, meter := realServer(t), new(Meter)
	do(t, rdb, "SET", "lock:a", "token:1")
	r := NewScanner(rdb, ScanOptions{Meter: meter}).reader()
	all := []candidate{{name: "lock:a", typ: "string", companion: true}, {name: "gone", typ: "hash"}, {name: "lock:a:fence", typ: "string", companion: true}}
	check.NoError(t, r.read(t.Context(), all[:1])) // Redis 6 has no PEXPIRETIME
	all[0].entry = nil
	before := meter.Usage().Commands["getrange"]
	check.NoError(t, r.read(t.Context(), all))
	sent := meter.Usage().Commands
	check.True(t, all[0].entry != nil && all[1].entry == nil && all[2].entry == nil && len(r.unread) == 0, "read %+v, and not %v", all, r.unread)
	check.True(t, sent["getrange"] == before+1 && sent["hscan"] == 0, "the commands are %v", sent)
}
