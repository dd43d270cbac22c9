package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"locktop/internal/check"
)

// One pass over a history gives the same result as porcupine, which tries all orders. Scenario 111.
func TestTheProofDecidesAsPorcupineDoes(t *testing.T) {
	t.Parallel()
	for limit := 1; limit <= 3; limit++ {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { testProof(t, limit) })
	}
}

func testProof(t *testing.T, limit int) {
	broken, late := 0, 0
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 11))
		var h History
		section := &criticalSection{name: "k", limit: limit}
		clock := &clock{}
		at := func(us int) time.Time { return time.Unix(1, 0).Add(time.Duration(us) * time.Microsecond) }
		now := 0
		for i := range 25 {
			// Most holds follow one another. Some overlap, some fences fall,
			// some have an unknown end.
			got := now + random.IntN(40)
			left := got + 1 + random.IntN(30*limit)
			asked := got - random.IntN(60)
			deadline := 1 << 30
			if random.IntN(24) == 0 {
				deadline = asked + random.IntN(left-asked)
			}
			if deadline < got {
				late++
			}
			fence := int64(0)
			if seed%2 == 0 {
				fence = int64(i + 1)
				if random.IntN(60) == 0 {
					fence -= 2
				}
			}
			shared := random.IntN(4) == 0 && limit == 1 // a semaphore has no readers
			v := &Hold{Client: i, Fence: max(fence, 0), Shared: shared, section: section, Lease: leaseUntil{clock, at(deadline)}}
			h.Acquired(v, at(asked), at(got))
			switch how := random.IntN(80); {
			case how == 0:
			case deadline < left || how < 16:
				h.Ended(v, at(left), at(left), false)
			default:
				h.Ended(v, at(left), at(left+random.IntN(50)), true)
			}
			now = left
			if limit > 1 { // as many as the limit are inside
				now = got + 20
			}
			if random.IntN(50) == 0 {
				now -= random.IntN(20)
			}
		}
		got := h.Prove(time.Minute)
		result, _ := porcupine.CheckOperationsVerbose(lockModel(limit), operations(slices.Concat(h.parts...)), time.Minute)
		want := result == porcupine.Ok
		check.True(t, got.Known && got.Sound == want, "seed %d: sound %t (%s), porcupine says %t", seed, got.Sound, got.Why, want)
		if !got.Sound {
			broken++
		}
	}
	check.True(t, broken >= 100 && broken <= 500 && late >= 100,
		"%d of 600 histories broken, %d holds over before their reply: they prove little", broken, late)
}

func TestTheFirstViolationOfAHistoryIsNamed(t *testing.T) {
	for want, c := range map[string]struct {
		limit int
		holds [][2]int
	}{
		"3 holds is not that of a lock: client-2 had k from 20 ms to 40 ms, and client-3 got it at 30 ms": {1, [][2]int{{10, 20}, {30, 50}, {40, 60}}},
		"4 holds is not that of a lock: 2 clients had k, client-3 among them from 41 ms to 50 ms, and client-4 got it at 45 ms": {
			2, [][2]int{{10, 70}, {30, 50}, {51, 60}, {55, 90}},
		},
	} {
		var h History
		section := &criticalSection{name: "k", limit: c.limit}
		at := func(ms int) time.Time { return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond) }
		for i, hold := range c.holds {
			v := &Hold{Client: i, section: section, Lease: always{}}
			h.Acquired(v, at(hold[0]), at(hold[0]))
			h.Ended(v, at(hold[1]), at(hold[1]), true)
		}
		check.Equal(t, h.Prove(time.Minute).String(), "The history of "+want)
	}
}

// historyWithWaiters returns a history of n holds of one key by a hundred clients that all wait.
func historyWithWaiters(n int) *History {
	var h History
	section := &criticalSection{name: "k"}
	at := func(us int) time.Time { return time.Unix(1, 0).Add(time.Duration(us) * time.Microsecond) }
	for i := range n {
		v := &Hold{Client: i % 100, section: section, Lease: always{}}
		h.Acquired(v, at(max(0, 10*i-1000)), at(10*i))
		h.Ended(v, at(10*i+9), at(10*i+19), true)
	}
	return &h
}

// What would take too long is not proved, and not said to be proved.
func TestAHistoryThatIsTooLongProvesNothing(t *testing.T) {
	var h History
	section := &criticalSection{name: "k"}
	for range HistoryLimit {
		h.Acquired(&Hold{section: section, Lease: always{}}, time.Unix(0, 0), time.Unix(1, 0))
	}
	check.False(t, h.Prove(time.Minute).Sound, "overlaps up to the limit are not found")
	last := &Hold{section: section, Lease: always{}}
	h.Acquired(last, time.Unix(0, 0), time.Unix(1, 0))
	h.Ended(last, time.Unix(2, 0), time.Unix(2, 0), true)
	p := h.Prove(time.Minute)
	check.True(t, !p.Known && p.Sound && len(h.parts) == 0, "%s", p)
}

func TestAProofMakesOnlySoManySearches(t *testing.T) {
	for _, n := range []int{maxSearches, maxSearches + 1} {
		var h History
		at := func(ms int) time.Time { return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond) }
		for i := range n { // each lease was over before its reply
			v := &Hold{section: &criticalSection{name: strconv.Itoa(i)}, Lease: leaseUntil{&clock{}, at(20)}}
			h.Acquired(v, at(0), at(50))
			h.Ended(v, at(55), at(56), false)
		}
		p := h.Prove(time.Minute)
		check.True(t, p.Sound && p.Known == (n == maxSearches), "%d searches: %s", n, p)
	}
}

func TestAHistoryWithManyWaitersIsProvedQuickly(t *testing.T) {
	h := historyWithWaiters(100_000)
	began := time.Now()
	p := h.Prove(time.Minute)
	check.True(t, p.Sound && p.Known && p.Holds == 100_000, "%v", p)
	check.AtMost(t, time.Since(began), 3*time.Second)
}

// cutTest is a history of one key, in milliseconds.
type cutTest struct {
	History
	section criticalSection
}

func (c *cutTest) at(ms int) time.Time {
	return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond)
}

// hold adds a hold that was acquired since, entered at got and released at left.
func (c *cutTest) hold(client int, fence int64, since, got, left int) {
	v := &Hold{Began: c.at(got), since: c.at(since), Client: client, Fence: fence, section: &c.section, Lease: always{}}
	c.Acquired(v, c.at(0), c.at(got))
	if left > 0 {
		c.Ended(v, c.at(left), c.at(left+1), true)
	}
}

func newCutTest() *cutTest { return &cutTest{section: criticalSection{name: "k"}} }

// The audit's defect A1: the proof accused a sound lock whose keys a fault had deleted.
func TestAHistoryIsCutWhereLocksAreDeleted(t *testing.T) {
	wipe := func(key int, from, to int) Trouble {
		return Trouble{Cause: "flush", Client: Everybody, Key: key, From: newCutTest().at(from), To: newCutTest().at(to)}
	}
	for _, c := range []struct {
		name    string
		holds   [][3]int // since, got, left
		cuts    []Trouble
		sound   bool
		unknown int64
	}{
		{"no cut", [][3]int{{10, 11, 100}, {60, 61, 120}}, nil, false, 0},
		{"deleted in between", [][3]int{{10, 11, 100}, {60, 61, 120}}, []Trouble{wipe(0, 50, 51)}, true, 0},
		{"all keys", [][3]int{{10, 11, 100}, {60, 61, 120}}, []Trouble{wipe(Everybody, 50, 51)}, true, 0},
		{"another key", [][3]int{{10, 11, 100}, {60, 61, 120}}, []Trouble{wipe(1, 50, 51)}, false, 0},
		{"deleted before both", [][3]int{{10, 11, 100}, {60, 61, 120}}, []Trouble{wipe(0, 5, 6)}, false, 0},
		{"deleted after both", [][3]int{{10, 11, 100}, {60, 61, 120}}, []Trouble{wipe(0, 101, 102)}, false, 0},
		{"an overlap before the cut", [][3]int{{10, 11, 100}, {40, 41, 120}}, []Trouble{wipe(0, 50, 51)}, false, 0},
		{"an overlap after the cut", [][3]int{{10, 11, 100}, {60, 61, 120}, {80, 81, 130}}, []Trouble{wipe(0, 50, 51)}, false, 0},
		{"its reply was on its way", [][3]int{{60, 61, 120}, {49, 70, 90}}, []Trouble{wipe(0, 50, 51)}, true, 1},
		{"acquired at the end of the cut", [][3]int{{60, 61, 120}, {51, 70, 90}}, []Trouble{wipe(0, 50, 51)}, true, 1},
		{"acquired after the cut", [][3]int{{60, 61, 120}, {52, 70, 90}}, []Trouble{wipe(0, 50, 51)}, false, 0},
		{"it never ended", [][3]int{{10, 11, 0}, {60, 61, 120}}, []Trouble{wipe(0, 50, 51)}, true, 0},
		{"two cuts", [][3]int{{10, 11, 100}, {60, 61, 120}, {80, 81, 130}}, []Trouble{wipe(0, 70, 71), wipe(Everybody, 50, 51)}, true, 0},
		{"one of two cuts", [][3]int{{10, 11, 100}, {60, 61, 120}, {80, 81, 130}}, []Trouble{wipe(0, 70, 71), wipe(1, 50, 51)}, false, 0},
	} {
		h := newCutTest()
		for i, hold := range c.holds {
			h.hold(i, 0, hold[0], hold[1], hold[2])
		}
		other := &Hold{since: h.at(0), section: &criticalSection{name: "other"}, Lease: always{}}
		h.Acquired(other, h.at(0), h.at(1))
		h.Cut([]string{"k", "other"}, c.cuts)
		p := h.Prove(time.Minute)
		check.True(t, p.Sound == c.sound && p.Known && p.Unknown == c.unknown, "%s: %s, %d unknown", c.name, p, p.Unknown)
	}
}

func TestFencesMayFallWhereTheHistoryIsCut(t *testing.T) {
	for _, fences := range [][]int64{{8, 9, 1, 2}, {8, 7, 1, 2}, {8, 9, 2, 1}} {
		h := newCutTest()
		for i, fence := range fences {
			h.hold(i, fence, 10*i, 10*i+1, 10*i+5)
		}
		h.Cut([]string{"k"}, []Trouble{{Cause: "failover", Client: Everybody, Key: Everybody, From: h.at(17), To: h.at(18)}})
		p := h.Prove(time.Minute)
		check.True(t, p.Sound == slices.Equal(fences, []int64{8, 9, 1, 2}), "%v: %s", fences, p)
	}
}

func TestACutThatLastsLeavesOutWhatFollows(t *testing.T) {
	h := newCutTest()
	h.hold(0, 0, 10, 11, 20)
	h.hold(1, 0, 60, 61, 90)
	h.hold(2, 0, 70, 71, 80)
	h.Cut([]string{"k"}, []Trouble{{Cause: "node-restart-empty", Client: Everybody, Key: Everybody, From: h.at(50), lasting: true}, {Cause: "flush", Key: Everybody, From: h.at(51), To: h.at(51)}, {Cause: "flush", Key: Everybody, From: h.at(52), To: h.at(52)}})
	want := "The history of 3 holds is that of a lock (cut 3 times, at flush, node-restart-empty, which deleted locks: nothing is known of 2 holds)"
	p := h.Prove(time.Minute)
	check.True(t, p.String() == want, "got  %s\nwant %s", p, want)
	var none *History
	none.Cut(nil, []Trouble{{}})
}

// A lease that was over before its reply came is searched for among the other holds: the reply
// may come while the next client is inside.
func TestAHoldThatWasOverBeforeItsReplyIsFound(t *testing.T) {
	for deadline, sound := range map[int]bool{20: true, 40: false} { // the next one got it at 30
		h := newCutTest()
		v := &Hold{Client: 1, section: &h.section, Lease: leaseUntil{&clock{}, h.at(deadline)}}
		h.hold(2, 0, 30, 30, 60)
		h.Acquired(v, h.at(0), h.at(50))
		h.Ended(v, h.at(55), h.at(56), false)
		h.hold(3, 0, 9, 10, 15)
		p := h.Prove(time.Minute)
		check.True(t, p.Sound == sound, "over at %d: %s", deadline, p)
	}
}
