package oracle

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"locktop/internal/check"
)

// request is the input of a porcupine operation.
type request struct {
	hold    int // below 64
	acquire bool
	shared  bool
	fence   int64
}

// held is the state of one lock: who holds it, as one bit for each hold.
type held struct {
	writers, readers uint64
	fence            int64
}

// lockModel is the porcupine model of a perfect lock that limit clients may hold at once.
func lockModel(limit int) porcupine.Model {
	return porcupine.Model{Init: func() any { return held{} }, Step: func(state, input, _ any) (bool, any) {
		s, r := state.(held), input.(request)
		bit, own := uint64(1)<<r.hold, &s.writers
		free := s.readers == 0 && bits.OnesCount64(s.writers) < limit && (limit > 1 || r.fence == 0 || r.fence > s.fence)
		if r.shared {
			own, free = &s.readers, s.writers == 0
		}
		if !r.acquire {
			has := *own&bit != 0
			*own &^= bit
			return has, s
		}
		*own |= bit
		if !r.shared {
			s.fence = max(s.fence, r.fence)
		}
		return free, s
	}}
}

// One pass over a history gives the same result as porcupine, which tries all orders. Scenario 111.
func TestTheProofDecidesAsPorcupineDoes(t *testing.T) {
	t.Parallel()
	for limit := 1; limit <= 3; limit++ {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { testProof(t, limit) })
	}
}

func testProof(t *testing.T, limit int) {
	broken, late := 0, 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 11))
		var h History
		var ops []porcupine.Operation
		section := &criticalSection{name: "k", limit: limit}
		clock := &clock{}
		at := func(us int) time.Time { return time.Unix(1, 0).Add(time.Duration(us) * time.Microsecond) }
		now := 0
		for i := range 25 {
			// Most holds follow one another. Some overlap, some fences fall,
			// some have an unknown end.
			got := now + random.IntN(40)
			left := got + max(0, random.IntN(30*limit)-3)
			asked := got - random.IntN(120)
			deadline := 1 << 30
			if random.IntN(2+int(seed%24)) == 0 {
				deadline = asked - 5 + random.IntN(left-asked+5)
			}
			if deadline < got {
				late++
			}
			fence := int64(0)
			if seed%2 == 0 {
				fence = int64(i + 1)
				if random.IntN(60) == 0 || deadline < got {
					fence += random.Int64N(6) - 3
				}
			}
			shared := random.IntN(4) == 0 && limit == 1 // a semaphore has no readers
			r := request{i, true, shared, max(fence, 0)}
			ops = append(ops, porcupine.Operation{ClientId: i, Input: r, Call: int64(asked), Return: int64(got)})
			v := &Hold{Client: i, Fence: r.fence, Shared: shared, Asked: at(asked), Began: at(got), section: section, Lease: leaseUntil{clock, at(deadline)}}
			released := deadline >= left && random.IntN(5) > 0
			r.acquire = false
			end := porcupine.Operation{ClientId: i, Input: r, Call: int64(min(left, deadline)), Return: math.MaxInt64}
			if released {
				end.Return = int64(left + random.IntN(50))
			}
			if random.IntN(80) == 0 { // it never ends
				h.Record(v, at(1<<30), true)
			} else {
				h.Record(v, at(left), released)
				ops = append(ops, end)
			}
			if limit > 1 { // as many as the limit are inside
				left = got + 20
			}
			if deadline >= got { // otherwise the reply may come while the next one is inside
				now = left
			}
			if random.IntN(50) == 0 {
				now -= random.IntN(20)
			}
		}
		got := h.Prove()
		want := porcupine.CheckOperations(lockModel(limit), ops)
		check.True(t, got.Known && got.Sound == want, "seed %d: sound %t (%s), porcupine says %t", seed, got.Sound, got.Why, want)
		if !got.Sound {
			broken++
		}
	}
	check.True(t, broken >= 200 && broken <= 1800 && late >= 100,
		"%d of 2000 histories broken, %d holds over before their reply: they prove little", broken, late)
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
		h := newCutTest()
		h.section.limit = c.limit
		for i, hold := range slices.Backward(c.holds) {
			h.hold(i, 0, hold[0], hold[0], hold[1])
		}
		check.Equal(t, h.Prove().String(), "The history of "+want)
	}
}

// What would take too long is not proved, and not said to be proved.
func TestAHistoryThatIsTooLongProvesNothing(t *testing.T) {
	var h History
	section := &criticalSection{name: "k"}
	for range HistoryLimit {
		h.Record(&Hold{Asked: time.Unix(0, 0), Began: time.Unix(1, 0), section: section, Lease: always{}}, time.Unix(2, 0), true)
	}
	check.False(t, h.Prove().Sound, "overlaps up to the limit are not found")
	h.Record(&Hold{section: section, Lease: always{}}, time.Unix(2, 0), true)
	p := h.Prove()
	check.True(t, !p.Known && p.Sound && len(h.parts) == 0, "%s", p)
}

// cutTest is a history of one key, in milliseconds.
type cutTest struct {
	History
	section criticalSection
}

func (c *cutTest) at(ms int) time.Time {
	return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond)
}

// hold adds a hold that was acquired since, entered at got and released at left; 0 = never.
func (c *cutTest) hold(client int, fence int64, since, got, left int) {
	v := &Hold{Asked: c.at(since), Began: c.at(got), since: c.at(since), Client: client, Fence: fence, section: &c.section, Lease: always{}}
	c.Record(v, c.at(cmp.Or(left, 1<<30)), true)
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
		for i, hold := range slices.Backward(c.holds) {
			h.hold(i, 0, hold[0], hold[1], hold[2])
		}
		h.Record(&Hold{Asked: h.at(0), Began: h.at(1), since: h.at(0), section: &criticalSection{name: "other"}, Lease: always{}}, h.at(2), true)
		h.Cut([]string{"k", "other"}, c.cuts)
		p := h.Prove()
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
		p := h.Prove()
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
	p := h.Prove()
	check.True(t, p.String() == want, "got  %s\nwant %s", p, want)
	var none *History
	none.Cut(nil, []Trouble{{}})
}

// An order that forgets older holds has the same crossings as one that keeps all.
func TestAnOrderForgetsOnlyWhatNoLaterHoldCrosses(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 54))
		forgets, keeps := History{Limit: 1 + int(seed%2), parts: make([][]recordedHold, 1), room: 64}, History{Limit: 1 + int(seed%2)}
		cutting := false
		for from := int64(2); from < 5000; from += 2 + 2*random.Int64N(8) {
			client, keys, shared, to := 1+random.IntN(9), []string{"a", "b"}[random.IntN(2):], random.IntN(3) == 0, from+random.Int64N(30)
			cut := from%100 < 20
			for _, h := range []*History{&forgets, &keeps} {
				h.Add(client, keys, shared, from, to)
				if cut != cutting {
					h.CutOrder(from+1, cutting)
				}
			}
			cutting = cut
		}
		got, want := forgets.Crossings(), keeps.Crossings()
		check.DeepEqual(t, got, want, "seed %d", seed)
		check.True(t, len(forgets.parts[0]) < 64 && len(forgets.cuts) < 10 && want.Excused > 5 && want.Excused < want.Overlaps, "seed %d: %d holds and %d cuts are kept, %+v", seed, len(forgets.parts[0]), len(forgets.cuts), want)
	}
	var all History
	for place := range int64(orderRoom + 9) {
		all.Add(1, []string{"k"}, true, place, notYet)
	}
	check.True(t, len(all.parts[0]) == orderRoom+9 && all.room == 2*orderRoom, "%d holds inside at once, and room for %d", len(all.parts[0]), all.room)
}
