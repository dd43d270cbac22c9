package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"

	"github.com/anishathalye/porcupine"
)

// One pass over a history gives the same result as porcupine, which tries all orders.
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
			v := &Occupancy{participant: Participant{Client: i, Fence: max(fence, 0), Shared: shared}, section: section, lease: leaseUntil{clock, at(deadline)}}
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
		"the history of 3 holds is not that of a lock: client-2 had k from 20 ms to 40 ms, and client-3 got it at 30 ms":                       {1, [][2]int{{10, 20}, {30, 50}, {40, 60}}},
		"the history of 4 holds is not that of a lock: 2 clients had k, client-3 among them from 41 ms to 50 ms, and client-4 got it at 45 ms": {2, [][2]int{{10, 70}, {30, 50}, {51, 60}, {55, 90}}},
	} {
		var h History
		section := &criticalSection{name: "k", limit: c.limit}
		at := func(ms int) time.Time { return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond) }
		for i, hold := range c.holds {
			v := &Occupancy{participant: Participant{Client: i}, section: section, lease: always{}}
			h.Acquired(v, at(hold[0]), at(hold[0]))
			h.Ended(v, at(hold[1]), at(hold[1]), true)
		}
		check.Equal(t, h.Prove(time.Minute).String(), want)
	}
}

// historyWithWaiters returns a history of n holds of one key by a hundred clients that all wait.
func historyWithWaiters(n int) *History {
	var h History
	section := &criticalSection{name: "k"}
	at := func(us int) time.Time { return time.Unix(1, 0).Add(time.Duration(us) * time.Microsecond) }
	for i := range n {
		v := &Occupancy{participant: Participant{Client: i % 100}, section: section, lease: always{}}
		h.Acquired(v, at(max(0, 10*i-1000)), at(10*i))
		h.Ended(v, at(10*i+9), at(10*i+19), true)
	}
	return &h
}

func TestAHistoryWithManyWaitersIsProvedQuickly(t *testing.T) {
	h := historyWithWaiters(100_000)
	began := time.Now()
	p := h.Prove(time.Minute)
	check.True(t, p.Sound && p.Known && p.Holds == 100_000, "%v", p)
	check.AtMost(t, time.Since(began), 3*time.Second)
}

func BenchmarkProve(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				historyWithWaiters(n).Prove(time.Minute)
			}
		})
	}
}
