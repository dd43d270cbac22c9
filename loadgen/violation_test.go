package loadgen

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// theatre plays the clients of one key. The test sets its clock.
type theatre struct {
	*oracle
	clock *clock
	t     *testing.T
}

func onStage(t *testing.T) *theatre {
	return &theatre{newOracle([]string{"k"}, 3*time.Second), &clock{time.Unix(0, 0)}, t}
}

func (th *theatre) at(ms int) time.Time {
	th.clock.now = time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)
	return th.clock.now
}

// enters lets a client acquire the lock at a time, with a lease until a
// deadline.
func (th *theatre) enters(who participant, at, deadline int) *occupancy {
	now := th.at(at)
	who.asked = now
	th.waiterAdded(0, &attempt{client: who.client, asked: now, ctx: th.t.Context()})
	return th.enter(0, who, term{th.clock, time.Unix(0, 0).Add(time.Duration(deadline) * time.Millisecond)}, now)
}

func (th *theatre) judged() Metrics {
	var m Metrics
	th.fill(&m, th.clock.now)
	return m
}

// violations holds the counts in one comparable value.
type violations struct{ overlaps, excused, late, fenced, corrupt, stuck, foreign int64 }

func (th *theatre) saw(want violations) {
	th.t.Helper()
	m := th.judged()
	got := violations{m.Overlap.Count, m.Overlap.Excused, m.LateWork.Count, m.Fenced, m.AcceptedStaleWrites, m.Stuck, m.ForeignUnlocks}
	if got != want {
		th.t.Errorf("saw  %+v\nwant %+v", got, want)
	}
}

func TestAWriteAfterTheDeadlineIsLateWork(t *testing.T) {
	th := onStage(t)
	v := th.enters(participant{client: 1}, 0, 1000)
	if !th.write(v, false, th.at(999)) {
		t.Error("a write in time was refused")
	}
	th.saw(violations{})
	th.write(v, false, th.at(1250))
	th.saw(violations{late: 1})
	if m := th.judged(); m.LateWork.Longest != 250*time.Millisecond || m.Evidence[0].First.Client != 2 || m.Evidence[0].Length != 250*time.Millisecond {
		t.Errorf("got %+v", m)
	}
}

func TestAPoliteClientDoesNotWriteLate(t *testing.T) {
	th := onStage(t)
	v := th.enters(participant{}, 0, 1000)
	if th.write(v, true, th.at(1250)) {
		t.Error("it wrote")
	}
	th.saw(violations{})
}

// Scenario 109.
func TestAStaleWriteIsRefusedByItsNumberAndAcceptedWithoutOne(t *testing.T) {
	for _, fence := range []int64{0, 7} {
		th := onStage(t)
		first := th.enters(participant{client: 1, fence: fence}, 0, 1000)
		th.applyFault(first, Freeze)
		next := fence
		if fence > 0 {
			next++
		}
		second := th.enters(participant{client: 2, fence: next}, 1100, 2100)
		accepted := th.write(first, false, th.at(1200))
		if accepted != (fence == 0) {
			t.Errorf("number %d: accepted %t", fence, accepted)
		}
		if !th.write(second, true, th.at(1300)) {
			t.Error("the holder's own write was refused")
		}
		want := violations{late: 1, corrupt: 1}
		if fence > 0 {
			want = violations{late: 1, fenced: 1}
		}
		th.saw(want)
		e := th.judged().Evidence[0]
		if e.First.Client != 2 || e.Second.Client != 3 || e.Cause != "freeze" {
			t.Errorf("evidence %+v", e)
		}
	}
}

func TestReadersDoNotExcludeEachOther(t *testing.T) {
	th := onStage(t)
	first := th.enters(participant{client: 1, shared: true}, 0, 1000)
	second := th.enters(participant{client: 2, shared: true}, 10, 1010)
	th.saw(violations{})
	th.enters(participant{client: 3}, 20, 1020)
	th.saw(violations{overlaps: 1})
	th.leave(second, th.at(50))
	th.leave(first, th.at(50))
	if m := th.judged(); m.Overlap.Longest != 30*time.Millisecond || m.Evidence[0].Second.Reader || !m.Evidence[0].First.Reader {
		t.Errorf("got %+v", m)
	}
	th.enters(participant{client: 4, shared: true}, 60, 1060)
	th.saw(violations{overlaps: 2})
}

func TestAReleaseThatRemovedSomebodyElsesLockIsForeign(t *testing.T) {
	th := onStage(t)
	late := th.enters(participant{client: 1}, 0, 1000)
	next := th.enters(participant{client: 2}, 1100, 2100)
	th.leave(late, th.at(1200))
	th.unlocked(late, th.at(1200), th.at(1201))
	th.saw(violations{foreign: 1})
	th.leave(next, th.at(1300))
	th.unlocked(next, th.at(1300), th.at(1301))
	th.saw(violations{foreign: 1})
}

func TestAHandoffIsNoForeignUnlock(t *testing.T) {
	th := onStage(t)
	v := th.enters(participant{client: 1}, 0, 1000)
	th.leave(v, th.at(500))
	th.enters(participant{client: 2}, 501, 1501) // before the reply to the release arrived
	th.unlocked(v, th.at(500), th.at(502))
	th.saw(violations{})
}

func TestAKeyThatNobodyCanTakeIsStuck(t *testing.T) {
	th := onStage(t)
	v := th.enters(participant{client: 1}, 0, 10_000)
	th.waiterAdded(0, &attempt{client: 98, asked: th.at(100), ctx: t.Context()})
	th.at(9_000)
	th.saw(violations{}) // it is held
	th.leave(v, th.at(10_000))
	th.at(12_999)
	th.saw(violations{})
	th.at(13_001)
	th.saw(violations{stuck: 1})
	th.waiterGone(0, 98, th.at(20_000))
	th.saw(violations{stuck: 1})
	th.enters(participant{client: 2}, 90_000, 100_000) // no client wanted it in between
	th.saw(violations{stuck: 1})
	if e := th.judged().Evidence; len(e) != 1 || e[0].Length != 10*time.Second {
		t.Errorf("evidence %+v", e)
	}
}

func TestALapsedLeaseThatIsStillInsideDoesNotHoldTheKey(t *testing.T) {
	th := onStage(t)
	th.enters(participant{client: 1}, 0, 1000) // frozen: it never leaves
	th.waiterAdded(0, &attempt{client: 98, asked: th.at(500), ctx: t.Context()})
	th.at(3900)
	th.saw(violations{})
	th.at(4001)
	th.saw(violations{stuck: 1})
}

func TestWhatADeletedKeyLetsInIsExcused(t *testing.T) {
	for _, key := range []int{0, -1} {
		th := onStage(t)
		first := th.enters(participant{client: 1}, 0, 1000)
		th.wipe(key, ExternalDelete, th.at(100))
		th.enters(participant{client: 2}, 200, 1200)
		th.saw(violations{overlaps: 1, excused: 1})
		th.leave(first, th.at(300))
		if e := th.judged().Evidence[0]; e.Cause != "steal" || e.Length != 100*time.Millisecond {
			t.Errorf("evidence %+v", e)
		}
		// The second client holds the key rightfully, so another one beside it
		// is a fault of the lock.
		th.enters(participant{client: 3}, 400, 1400)
		th.saw(violations{overlaps: 2, excused: 1})
	}
}

func TestOnlyTheFirstViolationsAreKeptAndAllAreCounted(t *testing.T) {
	th := onStage(t)
	v := th.enters(participant{}, 0, 1)
	for i := range 100 {
		th.write(v, false, th.at(10+i))
	}
	if m := th.judged(); m.LateWork.Count != 100 || len(m.Evidence) != maxEvidence {
		t.Errorf("%d counted, %d kept", m.LateWork.Count, len(m.Evidence))
	}
}

// Scenario 111: porcupine and the oracle agree.
func TestTheProofAndTheOracleAgreeOnRandomHistories(t *testing.T) {
	broken := 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 7))
		history := make([]stay, 60)
		for i := range history {
			h := &history[i]
			h.key = random.IntN(2)
			h.began = random.IntN(1_000_000)
			h.left = h.began + 1 + random.IntN(100<<(seed%8))
		}
		history = unambiguous(history)
		var h History
		for i, s := range history {
			section := &criticalSection{name: string(rune('a' + s.key))}
			v := &occupancy{participant: participant{client: i}, section: section, lease: always{}}
			at := func(us int) time.Time { return time.Unix(1, 0).Add(time.Duration(us) * time.Microsecond) }
			h.acquired(v, at(s.began), at(s.began))
			h.ended(v, at(s.left), at(s.left), released)
		}
		sound, overlaps := h.Prove(time.Minute).Sound, truth(history).count
		if sound != (overlaps == 0) {
			t.Errorf("seed %d: sound %t, %d overlaps", seed, sound, overlaps)
		}
		if !sound {
			broken++
		}
	}
	if broken < 20 || broken > 80 {
		t.Errorf("%d of 100 histories broken: they prove little", broken)
	}
}

func TestNumbersThatGoBackAreNotThoseOfALock(t *testing.T) {
	for _, fences := range [][]int64{{1, 2, 3}, {1, 3, 2}} {
		var h History
		for i, fence := range fences {
			v := &occupancy{participant: participant{client: i, fence: fence}, section: &criticalSection{name: "k"}, lease: always{}}
			at := time.Unix(int64(10*i), 0)
			h.acquired(v, at, at.Add(time.Second))
			h.ended(v, at.Add(2*time.Second), at.Add(3*time.Second), released)
		}
		if sound := h.Prove(time.Minute).Sound; sound != slices.IsSorted(fences) {
			t.Errorf("%v: sound %t", fences, sound)
		}
	}
}

func TestALeaseThatRanOutMayBeFollowedAfterItsDeadlineAndNotBefore(t *testing.T) {
	for _, c := range []struct {
		next int64 // when the next client acquired it
		want bool
	}{{9, false}, {11, true}} {
		var h History
		at := func(s int64) time.Time { return time.Unix(s, 0) }
		first := &occupancy{participant: participant{client: 1}, section: &criticalSection{name: "k"}, lease: term{&clock{}, at(10)}}
		h.acquired(first, at(0), at(1))
		second := &occupancy{participant: participant{client: 2}, section: &criticalSection{name: "k"}, lease: always{}}
		h.acquired(second, at(c.next-1), at(c.next))
		h.ended(first, at(20), at(21), expired)
		if got := h.Prove(time.Minute).Sound; got != c.want {
			t.Errorf("next at %d: sound %t", c.next, got)
		}
	}
}
