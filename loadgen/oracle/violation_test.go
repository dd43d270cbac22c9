package oracle

import (
	"context"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
)

// oracleTest plays the clients of one key. The test sets its clock.
type oracleTest struct {
	*Oracle
	clock *clock
	t     *testing.T
}

func newOracleTest(t *testing.T) *oracleTest {
	return &oracleTest{New(Config{Keys: []string{"k"}, Patience: 3 * time.Second}), &clock{time.Unix(0, 0)}, t}
}

func (th *oracleTest) at(ms int) time.Time {
	th.clock.now = time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)
	return th.clock.now
}

// enter lets a client acquire the lock at a time, with a lease until a deadline.
func (th *oracleTest) enter(h Hold, at, deadline int) *Hold {
	now := th.at(at)
	h.Lease = leaseUntil{th.clock, time.Unix(0, 0).Add(time.Duration(deadline) * time.Millisecond)}
	return enter(th.Oracle, h, now, 0)
}

func (th *oracleTest) Wipe(key int, cause Cause, now time.Time) {
	th.Troubled(Trouble{Cause: cause, Client: Everybody, Key: key, From: now, To: now})
}

func (th *oracleTest) wipeBegan(key int, cause Cause, at int) {
	th.TroubleBegan(Trouble{Cause: cause, Client: Everybody, Key: key, From: th.at(at)})
}

func (th *oracleTest) wipeEnded(key int, cause Cause, at int) {
	th.TroubleEnded(cause, Everybody, key, th.at(at))
}

func (th *oracleTest) violations() Violations { return th.Violations(th.clock.now) }

// violations holds the counts in one comparable value.
type violations struct{ overlaps, excused, late, fenced, corrupt, stuck, foreign int64 }

func (th *oracleTest) wantViolations(want violations) {
	th.t.Helper()
	m := th.violations()
	got := violations{m.Overlap.Count, m.Overlap.Excused, m.LateWork.Count, m.StaleWriteRefused.Count, m.StaleWriteAccepted.Count, m.StuckKey.Count, m.ForeignUnlock.Count}
	check.Equal(th.t, got, want)
}

func TestAWriteAfterTheDeadlineIsLateWork(t *testing.T) {
	th := newOracleTest(t)
	v := th.enter(Hold{Client: 1}, 0, 1000)
	check.True(t, th.Write(v, false, th.at(999)), "a write in time was refused")
	th.wantViolations(violations{})
	check.False(t, th.Write(v, true, th.at(1250)), "a polite client wrote")
	th.wantViolations(violations{})
	th.Write(v, false, th.at(1250))
	th.wantViolations(violations{late: 1})
	if m := th.violations(); m.LateWork.Longest != 250*time.Millisecond || m.Evidence[0].First.Client != 2 || m.Evidence[0].Length != 250*time.Millisecond {
		t.Errorf("got %+v", m)
	}
}

// Scenario 109.
func TestAStaleWriteIsRefusedByItsNumberAndAcceptedWithoutOne(t *testing.T) {
	for _, fence := range []int64{0, 7} {
		th := newOracleTest(t)
		first := th.enter(Hold{Client: 1, Fence: fence}, 0, 1000)
		th.Faulted(first, "freeze")
		next := fence
		if fence > 0 {
			next++
		}
		second := th.enter(Hold{Client: 2, Fence: next}, 1100, 2100)
		accepted := th.Write(first, false, th.at(1200))
		check.Equal(t, accepted, fence == 0, "number %d: accepted", fence)
		check.True(t, th.Write(second, true, th.at(1300)), "the holder's own write was refused")
		want := violations{late: 1, corrupt: 1}
		if fence > 0 {
			want = violations{late: 1, fenced: 1}
		}
		th.wantViolations(want)
		all := th.violations().Evidence
		e := all[slices.IndexFunc(all, func(e Evidence) bool { return e.Violation != LateWork })]
		check.True(t, e.First.Client == 2 && e.Second.Client == 3 && e.Cause == "freeze", "evidence %+v", e)
	}
}

func TestReadersDoNotExcludeEachOther(t *testing.T) {
	th := newOracleTest(t)
	first := th.enter(Hold{Client: 1, Shared: true}, 0, 1000)
	second := th.enter(Hold{Client: 2, Shared: true}, 10, 1010)
	th.wantViolations(violations{})
	th.enter(Hold{Client: 3}, 20, 1020)
	th.wantViolations(violations{overlaps: 1})
	th.Leave(second, th.at(50))
	th.Leave(first, th.at(50))
	m := th.violations()
	check.True(t, m.Overlap.Longest == 30*time.Millisecond && !m.Evidence[0].Second.Reader && m.Evidence[0].First.Reader, "got %+v", m)
	th.enter(Hold{Client: 4, Shared: true}, 60, 1060)
	th.wantViolations(violations{overlaps: 2})
}

func TestAReleaseThatRemovedAnotherClientsLockIsForeign(t *testing.T) {
	th := newOracleTest(t)
	late := th.enter(Hold{Client: 1}, 0, 1000)
	next := th.enter(Hold{Client: 2}, 1100, 2100)
	th.Leave(late, th.at(1200))
	th.Unlocked(late, th.at(1200), th.at(1201))
	th.wantViolations(violations{foreign: 1})
	th.Leave(next, th.at(1300))
	th.Unlocked(next, th.at(1300), th.at(1301))
	th.wantViolations(violations{foreign: 1})
}

func TestAClaimedReleaseIsForeignIfTheOtherLockIsGone(t *testing.T) {
	for what, c := range map[string]struct {
		then    func(th *oracleTest, next *Hold)
		foreign int64
	}{
		"the next one finds its lock": {func(th *oracleTest, next *Hold) { th.Leave(next, th.at(1300)) }, 0},
		"the next one loses its lock": {func(th *oracleTest, next *Hold) {
			th.Leave(next, th.at(1300))
			th.Removed(next, th.clock.now)
			th.Removed(next, th.clock.now)
		}, 1},
		"another client enters": {func(th *oracleTest, next *Hold) { th.enter(Hold{Client: 3}, 1300, 2300) }, 1},
		"a fault strikes the next one": {func(th *oracleTest, next *Hold) {
			th.Troubled(Trouble{Cause: "freeze", Client: 2, Key: Everybody, From: th.at(1150), To: th.at(1160)})
			th.Removed(next, th.at(1300))
		}, 0},
		"a fault deletes the lock": {func(th *oracleTest, next *Hold) { th.Wipe(0, "steal", th.at(1250)); th.Removed(next, th.at(1300)) }, 0},
		"a fault deletes all the locks": {func(th *oracleTest, next *Hold) {
			th.Wipe(-1, "flush", th.at(1250))
			th.Removed(next, th.at(1300))
		}, 0},
	} {
		th := newOracleTest(t)
		th.Oracle.config.Claimed = true
		late := th.enter(Hold{Client: 1}, 0, 1000)
		next := th.enter(Hold{Client: 2}, 1100, 2100)
		th.Leave(late, th.at(1200))
		th.Unlocked(late, th.at(1200), th.at(1201))
		c.then(th, next)
		check.Equal(t, th.violations().ForeignUnlock.Count, c.foreign, "%s: foreign unlocks", what)
	}
}

func TestAHandoffIsNoForeignUnlock(t *testing.T) {
	th := newOracleTest(t)
	v := th.enter(Hold{Client: 1}, 0, 1000)
	th.Leave(v, th.at(500))
	th.enter(Hold{Client: 2}, 501, 1501) // before the reply to the release arrived
	th.Unlocked(v, th.at(500), th.at(502))
	th.wantViolations(violations{})
}

func TestAKeyThatNoClientCanAcquireIsStuck(t *testing.T) {
	th := newOracleTest(t)
	v := th.enter(Hold{Client: 1}, 0, 10_000)
	waiter := th.Ask(Hold{Client: 98, Asked: th.at(100)}, 0)
	th.at(9_000)
	th.wantViolations(violations{}) // it is held
	th.Leave(v, th.at(10_000))
	th.at(12_999)
	th.wantViolations(violations{})
	th.at(13_001)
	th.wantViolations(violations{stuck: 1})
	th.GiveUp(waiter, th.at(14_000))
	th.wantViolations(violations{stuck: 1})
	th.enter(Hold{Client: 2}, 90_000, 100_000) // no client wanted it in between
	th.wantViolations(violations{stuck: 1})
	e := th.violations().Evidence
	check.True(t, len(e) == 1 && e[0].Length == 4*time.Second, "evidence %+v", e)
}

// The spans are those of all keys that were or are stuck, but for a forgotten lock.
func TestTheTimesOfStuckKeysAreKnown(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		th := newOracleTest(t)
		v := th.enter(Hold{Client: 1}, 0, 1000)
		th.Leave(v, th.at(500))
		if forgotten {
			th.Forgotten(v)
		}
		th.GiveUp(th.Ask(Hold{Client: 98, Asked: th.at(1000)}, 0), th.at(20_000))
		th.Ask(Hold{Client: 98, Asked: th.at(30_000)}, 0)
		want := []span{
			{th.at(1000), th.at(20_000), []wait{{client: 98, from: th.at(1000)}}},
			{th.at(30_000), th.at(33_001), []wait{{client: 98, from: th.at(30_000)}}},
		}
		if forgotten {
			want = nil
		}
		check.DeepEqual(t, th.stuckSpans(th.at(33_001)), want, "forgotten %t", forgotten)
		got := th.stuckSpans(th.at(33_000))
		check.True(t, len(got) == min(len(want), 1), "forgotten %t, after the patience: %v", forgotten, got)
		all := th.violations()
		check.True(t, all.StuckKey.Count == 1 && all.Broken() == int64(len(got)) && all.Harm() == 1, "%+v", all)
	}
}

// The end of a hold in the evidence is known only if the client has left.
func TestTheEvidenceSaysWhoIsStillInside(t *testing.T) {
	th := newOracleTest(t)
	first := th.enter(Hold{Client: 1}, 0, 1000)
	second := th.enter(Hold{Client: 2}, 1100, 2100)
	th.Leave(second, th.at(1200))
	th.Write(first, false, th.at(1300))
	th.Leave(first, th.at(1400))
	for _, e := range th.violations().Evidence {
		check.True(t, e.First.Inside && !e.Second.Inside, "%s: %+v", e.Violation, e)
	}
	third := th.enter(Hold{Client: 3}, 1500, 1600)
	th.enter(Hold{Client: 4}, 1700, 2700)
	th.Leave(third, th.at(1800))
	all := th.violations().Evidence
	check.Require(t, len(all) == 4, "%+v", all)
	for _, e := range all {
		check.True(t, e.First.Client != 4 || !e.First.Inside && e.Second.Inside, "the first has left: %+v", e)
	}
}

func TestAnOverlapAfterADeletedKeyIsExcused(t *testing.T) {
	for _, key := range []int{0, -1} {
		th := newOracleTest(t)
		first := th.enter(Hold{Client: 1}, 0, 1000)
		th.Wipe(key, "steal", th.at(100))
		th.enter(Hold{Client: 2}, 200, 1200)
		th.wantViolations(violations{overlaps: 1, excused: 1})
		th.Leave(first, th.at(300))
		e := th.violations().Evidence[0]
		check.True(t, e.Cause == "steal" && e.Length == 100*time.Millisecond, "evidence %+v", e)
		// The second client holds the key rightfully, so another one beside it
		// is a fault of the lock.
		th.enter(Hold{Client: 3}, 400, 1400)
		th.wantViolations(violations{overlaps: 2, excused: 1})
	}
}

func TestAFaultThatDeletedNothingExcusesNothing(t *testing.T) {
	for key, earlier := range map[int]bool{0: false, -1: true} {
		th := newOracleTest(t)
		th.enter(Hold{Client: 1}, 0, 1000)
		if earlier {
			th.Wipe(key, "steal", th.at(50))
		}
		th.wipeBegan(key, "flush", 100)
		th.TroubleUndone("flush", Everybody, key)
		th.enter(Hold{Client: 2}, 200, 1200)
		want := violations{overlaps: 1}
		if earlier {
			want.excused = 1
		}
		th.wantViolations(want)
	}
}

func TestOnlyTheFirstViolationsAreKeptAndAllAreCounted(t *testing.T) {
	th, reported := newOracleTest(t), 0
	th.config.Report = func(Evidence) { reported++ }
	v := th.enter(Hold{}, 0, 1)
	for i := range 100 {
		th.Write(v, false, th.at(10+i))
	}
	m := th.violations()
	check.True(t, m.LateWork.Count == 100 && reported == 100 && len(m.Evidence) == maxEvidence,
		"%d counted, %d reported, %d kept", m.LateWork.Count, reported, len(m.Evidence))
}

func TestAHandoffIsTimedFromTheReleaseIfAClientWaitedThen(t *testing.T) {
	th := newOracleTest(t)
	var gaps []time.Duration
	th.config.Handoff = func(gap time.Duration) { gaps = append(gaps, gap) }
	first := th.enter(Hold{Client: 1}, 0, 10_000)
	second := th.Ask(Hold{Client: 2, Asked: th.at(50), Lease: leaseUntil{th.clock, th.at(20_000)}}, 0)
	th.Leave(first, th.at(100))
	th.Enter(second, th.at(130))
	th.Leave(second, th.at(200))
	th.enter(Hold{Client: 3}, 300, 30_000) // its attempt began when the key was free
	check.True(t, len(gaps) == 1 && gaps[0] == 30*time.Millisecond, "hand-offs %v, want 30ms", gaps)
	// The key was held for 100 ms and 70 ms, and is held since 300 ms.
	th.at(500)
	held, _ := th.Usage(500*time.Millisecond, th.clock.now)
	check.Between(t, held, 0.739, 0.741, "share of the time in which it was held")
}

// The lock of a client that died is locked until its lease is over, or another client has it.
func TestTheLockOfADeadClientCounts(t *testing.T) {
	for name, c := range map[string]struct {
		next    int // ms; 0 = nobody
		forever bool
		want    float64 // of 1 s
	}{"its lease ends": {0, false, 0.6}, "without a release": {0, true, 1}, "the next client has it": {400, true, 0.5}} {
		th := newOracleTest(t)
		dead := th.enter(Hold{Client: 1}, 0, 600)
		th.Leave(dead, th.at(100))
		th.LeftBehind(dead, th.at(100), c.forever)
		if c.next > 0 {
			th.Leave(th.enter(Hold{Client: 2}, c.next, 2000), th.at(c.next+100))
		}
		held, _ := th.Usage(time.Second, th.at(1000))
		check.Between(t, held, c.want-0.001, c.want+0.001, "%s: share of the time in which the key was locked", name)
	}
}

func TestUtilisationIsTheMeanOfTheRequestedKeys(t *testing.T) {
	clock := &clock{time.Unix(0, 0)}
	at := func(ms int) time.Time {
		clock.now = time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)
		return clock.now
	}
	o := New(Config{Keys: []string{"a", "b", "nobody's"}, Patience: time.Hour})
	a := enter(o, Hold{Lease: always{}}, at(0), 0)
	b := enter(o, Hold{Lease: always{}}, at(0), 1)
	o.Leave(a, at(100))
	o.Leave(b, at(300))
	held, _ := o.Usage(400*time.Millisecond, at(400))
	check.True(t, held == 0.5, "held for 1/4 and 3/4 of the time: %g", held)
}

func TestAStreakCountsWhileOthersWait(t *testing.T) {
	th := newOracleTest(t)
	for i := range 3 {
		th.Leave(th.enter(Hold{Client: 1}, 100*i, 10_000), th.at(100*i+50))
	}
	_, streak := th.Usage(time.Second, th.clock.now)
	check.True(t, streak == 0, "no other client waits, but a streak of %d", streak)
	th.Ask(Hold{Client: 9, Asked: th.at(400)}, 0)
	for i := range 2 {
		th.Leave(th.enter(Hold{Client: 2}, 500+100*i, 10_000), th.at(550+100*i))
	}
	_, streak = th.Usage(time.Second, th.clock.now)
	check.True(t, streak == 2, "a streak of %d, want 2", streak)
}

func TestWorkOverlapsAreCountedAlsoAfterTheEndOfALease(t *testing.T) {
	th := newOracleTest(t)
	first := th.enter(Hold{Client: 1}, 0, 1000)
	second := th.enter(Hold{Client: 2}, 1500, 2500) // allowed, while the first still works
	reader := th.enter(Hold{Client: 3, Shared: true}, 1600, 2600)
	th.Leave(first, th.at(2000))
	th.Leave(second, th.at(2100))
	th.Leave(reader, th.at(2200))
	m := th.violations()
	if m.WorkOverlap.Count != 2 || m.WorkOverlap.Longest != 500*time.Millisecond || m.Overlap.Count != 1 || m.Overlap.Longest != 500*time.Millisecond {
		t.Errorf("work %+v, leases %+v", m.WorkOverlap, m.Overlap)
	}
	kinds := map[Violation]int{}
	for _, e := range m.Evidence {
		kinds[e.Violation]++
	}
	check.True(t, kinds[WorkOverlap] == 1 && kinds[Overlap] == 1, "one of each is told: %v", kinds)
}

func TestAClientInTheQueueIsOvertakenOnlyByALaterOne(t *testing.T) {
	for _, c := range []struct {
		name          string
		refused, came int // ms
		gone          bool
		cause         Cause // empty: there is none
		end           int   // of the cause
		want          int64
	}{
		{"long in the queue", 100, 3000, false, "", 0, 1},
		{"in flight", 100, 2000, false, "", 0, 0},
		{"it came later", 2500, 2400, false, "", 0, 0},
		{"it waits no longer", 100, 3000, true, "", 0, 0},
		{"a stall that it has not recovered from", 100, 5000, false, Stalled, 2600, 0},
		{"a stall from which it could queue again", 100, 5000, false, Stalled, 2400, 1},
		{"an outage after which it may not be connected", 100, 14_000, false, Unanswered, 2100, 0},
		{"an outage after which it could queue again", 100, 14_000, false, Unanswered, 1900, 1},
		{"a freeze after which it could queue again", 100, 14_000, false, "freeze", 1900, 1},
		{"a deleted queue that it may not have joined again", 100, 14_000, false, "flush", 2100, 0},
		{"a deleted queue that it could join again", 100, 14_000, false, "flush", 1900, 1},
	} {
		th := newOracleTest(t)
		th.config.InOrder = true
		ctx, leave := context.WithCancel(t.Context())
		th.Ask(Hold{Client: 1, Asked: th.at(50), Ctx: ctx}, 0)
		th.Queued(0, 1, th.at(c.refused))
		if c.gone {
			leave()
		}
		if c.cause != "" {
			th.Troubled(Trouble{Cause: c.cause, Client: Everybody, Key: Everybody, From: th.at(c.end - 300), To: th.at(c.end)})
		}
		th.enter(Hold{Client: 2}, c.came, 10_000)
		th.Settle(th.clock.now)
		got := th.violations()
		check.Equal(t, got.Overtaken.Count, c.want, "%s", c.name)
		leave()
	}
}

// A client process that is asked again has lost its place. Its order is known once two asked 2 s apart.
func TestTheOrderOfClientProcessesCountsFromTheNewestRequest(t *testing.T) {
	for again, want := range map[int]int64{2900: 0, 500: 1} {
		th := newOracleTest(t)
		th.config.InOrder, th.config.Claimed, th.found.Overtaken.Unknown = true, true, true
		th.Ask(Hold{Client: 1, Asked: th.at(50), Ctx: t.Context()}, 0)
		th.Queued(0, 1, th.at(100))
		th.Queued(0, 1, th.at(again))
		th.enter(Hold{Client: 2}, 1000, 1100)
		check.True(t, th.violations().Overtaken.Unknown, "the order is judged of clients that asked at about the same time")
		th.enter(Hold{Client: 3}, 3000, 10_000)
		th.Settle(th.clock.now)
		got := th.violations().Overtaken
		check.True(t, got.Count == want && !got.Unknown, "asked again at %d ms: %+v", again, got)
	}
}

// newSemaphoreTest returns a test of a semaphore.
func newSemaphoreTest(t *testing.T, limit int) *oracleTest {
	th := newOracleTest(t)
	th.config.Limit, th.sections[0].limit = limit, limit
	return th
}

func TestTheEvidenceOfASemaphoreNamesAllHolders(t *testing.T) {
	th := newSemaphoreTest(t, 3)
	var holds []*Hold
	for i := range 4 {
		holds = append(holds, th.enter(Hold{Client: i}, 10*i, []int{1000, 1000, 65, 1000}[i]))
	}
	th.wantViolations(violations{overlaps: 1})
	th.Leave(holds[1], th.at(80))
	e := th.violations().Evidence[0]
	if e.First.Client != 1 || e.Second.Client != 4 || len(e.Others) != 2 || e.Others[0].Client != 2 || e.Others[1].Client != 3 || e.Length != 35*time.Millisecond {
		t.Errorf("evidence %+v", e)
	}
	th.Leave(holds[0], th.at(90))
	th.Leave(holds[3], th.at(90))
	th.Leave(holds[2], th.at(90))
	if m := th.violations(); len(m.Evidence) != 1 || m.Overlap.Longest != 35*time.Millisecond || m.WorkOverlap.Count != 1 || m.WorkOverlap.Longest != 50*time.Millisecond {
		t.Errorf("got %+v", m)
	}
}

func TestWorkOfMoreThanTheLimitIsAWorkOverlap(t *testing.T) {
	th := newSemaphoreTest(t, 2)
	first := th.enter(Hold{Client: 1}, 0, 1000)
	th.enter(Hold{Client: 2}, 100, 9000)
	if got := th.violations(); got.WorkOverlap.Count != 0 {
		t.Errorf("two of two: %+v", got.WorkOverlap)
	}
	check.True(t, th.Write(first, false, th.at(1100)), "refused") // late, and no other client has its place
	th.wantViolations(violations{late: 1})
	th.enter(Hold{Client: 3}, 1200, 9000)
	th.Write(first, false, th.at(1300))
	th.wantViolations(violations{late: 2, corrupt: 1})
	th.Leave(first, th.at(1500))
	got := th.violations()
	check.True(t, got.WorkOverlap.Count == 1 && got.WorkOverlap.Longest == 300*time.Millisecond && got.Evidence[0].Violation == StaleWriteAccepted,
		"%+v", got)
}

func TestAReleaseThatFreedMoreThanItsPermitIsForeign(t *testing.T) {
	th := newSemaphoreTest(t, 2)
	late := th.enter(Hold{Client: 1}, 0, 1000)
	th.enter(Hold{Client: 2}, 100, 9000)
	th.Unlocked(late, th.at(1100), th.at(1101)) // its permit may have been there still
	th.wantViolations(violations{})
	th.enter(Hold{Client: 3}, 1200, 9000)
	th.Leave(late, th.at(1300))
	th.Unlocked(late, th.at(1300), th.at(1301))
	th.wantViolations(violations{foreign: 1})
}

func TestASemaphoreWithAPermitThatNoClientCanAcquireIsStuck(t *testing.T) {
	for _, limit := range []int{2, 3} {
		th := newSemaphoreTest(t, limit)
		th.enter(Hold{Client: 1}, 0, 90_000)
		th.enter(Hold{Client: 2}, 0, 10_000)
		th.Ask(Hold{Client: 98, Asked: th.at(100)}, 0)
		th.at(9_000)
		th.wantViolations(violations{stuck: int64(limit - 2)}) // a third permit is free
		th.at(12_999)
		th.wantViolations(violations{stuck: int64(limit - 2)})
		th.at(13_001)
		th.wantViolations(violations{stuck: 1})
	}
}

func TestTheUtilisationOfASemaphoreIsThatOfItsPermits(t *testing.T) {
	th := newSemaphoreTest(t, 4)
	first := th.enter(Hold{Client: 1}, 0, 9000)
	th.enter(Hold{Client: 2}, 500, 9000)
	th.Leave(first, th.at(1000))
	held, _ := th.Usage(time.Second, th.clock.now)
	check.True(t, held == 0.375, "1 s and 0.5 s of four permits in 1 s: %g", held)
}

// newSetTest returns an oracle of three keys, of which one hold has several.
func newSetTest(t *testing.T) (*Oracle, func(ms int) time.Time, *clock) {
	clock := &clock{}
	at := func(ms int) time.Time {
		clock.now = time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)
		return clock.now
	}
	return New(Config{Keys: []string{"a", "b", "c"}, Sets: true, Patience: 3 * time.Second}), at, clock
}

func TestAHoldOfSeveralKeysExcludesOnEachOfThem(t *testing.T) {
	o, at, clock := newSetTest(t)
	both := enter(o, Hold{Client: 1, Lease: leaseUntil{clock, at(1000)}}, at(0), 0, 2)
	o.Faulted(both, "freeze")
	alone := enter(o, Hold{Client: 2, Lease: always{}}, at(100), 1)
	if got := o.Violations(clock.now); got.Harm() != 0 {
		t.Errorf("different keys: %+v", got)
	}
	beside := enter(o, Hold{Client: 3, Lease: always{}}, at(200), 2, 1)
	o.Leave(alone, at(250))
	check.Equal(t, o.Write(both, false, at(1100)), true, "refused")
	o.Leave(both, at(1200))
	o.Unlocked(both, at(1200), at(1201))
	o.Leave(beside, at(1300))
	got := o.Violations(clock.now)
	if got.Overlap.Count != 2 || got.WorkOverlap.Count != 2 || got.LateWork.Count != 1 || got.StaleWriteAccepted.Count != 1 || got.ForeignUnlock.Count != 1 {
		t.Errorf("got %+v", got)
	}
	for _, e := range got.Evidence {
		check.True(t, e.Violation != Overlap || (e.Key == "b" || e.Key == "c") && (e.Key != "c" || e.Cause == "freeze"), "evidence %+v", e)
	}
	for i := range o.sections {
		check.Equal(t, len(o.sections[i].inside), 0, "holds remain of key %d", i)
	}
}

func TestAKeyIsNotStuckWhileAnotherOneOfItsSetIsHeld(t *testing.T) {
	o, at, _ := newSetTest(t)
	held := enter(o, Hold{Client: 1, Lease: always{}}, at(0), 1, 2)
	o.Ask(Hold{Client: 2, Asked: at(0)}, 0, 1)
	check.Equal(t, o.Violations(at(60_000)).StuckKey.Count, 0, "stuck while the set is held")
	o.Leave(held, at(60_000))
	check.Equal(t, o.Violations(at(62_999)).StuckKey.Count, 0, "stuck within the patience")
	check.Equal(t, o.Violations(at(63_001)).StuckKey.Count, 2, "stuck after the patience")
}

func TestTheHandoffOfASetIsTimedFromTheReleaseOfItsLastKey(t *testing.T) {
	o, at, _ := newSetTest(t)
	var gaps []time.Duration
	o.config.Handoff = func(gap time.Duration) { gaps = append(gaps, gap) }
	first, second := enter(o, Hold{Client: 1, Lease: always{}}, at(0), 0), enter(o, Hold{Client: 2, Lease: always{}}, at(0), 1)
	third := o.Ask(Hold{Client: 3, Asked: at(50), Lease: always{}}, 0, 1)
	o.Leave(first, at(100))
	o.Leave(second, at(400))
	o.Enter(third, at(430))
	check.True(t, len(gaps) == 1 && gaps[0] == 30*time.Millisecond, "hand-offs %v, want 30ms", gaps)
}

func TestAHistoryOfSetsIsThatOfEachKey(t *testing.T) {
	for _, c := range []struct {
		second int // key of the second client
		want   bool
	}{{0, false}, {1, true}, {2, false}} {
		var h History
		o, at, _ := newSetTest(t)
		both := enter(o, Hold{Client: 1, Asked: at(0), Lease: always{}}, at(10), 0, 2)
		h.Record(enter(o, Hold{Client: 2, Asked: at(0), Lease: always{}}, at(20), c.second), at(40), true)
		h.Record(both, at(30), true)
		p := h.Prove()
		check.True(t, p.Sound == c.want && p.Holds == 3, "key %d: %v, %d holds", c.second, p, p.Holds)
	}
}

// A fault of another process, whose time is known to lie between two moments only, excuses
// the overlaps that it can have caused; two such faults at once do, too.
func TestAWipeByAnotherProcessExcusesOverlaps(t *testing.T) {
	overlap := func(th *oracleTest, first, second int) {
		a := th.enter(Hold{Client: 1}, first, first+1000)
		b := th.enter(Hold{Client: 2}, second, second+1000)
		th.Leave(a, th.at(second+1))
		th.Leave(b, th.at(second+2))
	}
	th := newOracleTest(t)
	th.wipeEnded(-1, "flush", 5) // without a begin
	overlap(th, 10, 20)
	th.wantViolations(violations{overlaps: 1})

	th.wipeBegan(-1, "flush", 1000)
	overlap(th, 1010, 1020)
	th.wantViolations(violations{overlaps: 2, excused: 1})
	check.Equal(t, th.violations().Evidence[1].Cause, "flush", "cause")
	th.wipeBegan(-1, "steal", 1100)
	th.wipeEnded(-1, "flush", 1200)
	overlap(th, 1210, 1220)
	th.wantViolations(violations{overlaps: 3, excused: 2})
	first := th.enter(Hold{Client: 1}, 1240, 2240)
	th.wipeEnded(-1, "steal", 1250)
	th.enter(Hold{Client: 2}, 1260, 2260)
	th.wantViolations(violations{overlaps: 4, excused: 3})
	th.Leave(first, th.at(1270))

	overlap(th, 3000, 3010)
	th.wantViolations(violations{overlaps: 5, excused: 3})
}

// The evidence of another machine is shown by the common clock.
func TestShiftedEvidenceHasAllItsTimesLater(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	side := func(client, s int) Side { return Side{Client: client, From: at(s), To: at(s + 1), Deadline: at(s + 2)} }
	e := Evidence{At: at(10), Length: time.Second, First: side(1, 20), Second: side(2, 30), Others: []Side{side(3, 40)}}
	got := e.Shift(5 * time.Second)
	want := Evidence{At: at(15), Length: time.Second, First: side(1, 25), Second: side(2, 35), Others: []Side{side(3, 45)}}
	check.DeepEqual(t, got, want)
	check.Equal(t, e.Others[0], side(3, 40), "the evidence itself has changed: %+v", e.Others)
	got = (Evidence{At: at(1)}).Shift(time.Second)
	check.True(t, got.First == (Side{}) && got.Second.From.IsZero(), "a side without a client has times: %+v", got)
}

// The sum of two oracles' violations has all their counts, the longest of their times, and
// the evidence of both, the worst first.
func TestViolationsAddUp(t *testing.T) {
	fill := func(n int64) (v Violations) {
		for i, k := range Kinds() {
			d := time.Duration(i)
			*k.Of(&v) = Tally{n + int64(i), n + int64(i) + 1, time.Duration(n) + d + 2, time.Duration(n) + d + 3, n > 500 && i == 1}
		}
		v.Unjudged = n + 19
		return v
	}
	a, b := fill(100), fill(1000)
	a.Evidence = []Evidence{{Violation: LateWork, Key: "a"}}
	b.Evidence = []Evidence{{Violation: Overlap, Key: "b"}, {Violation: LateWork, Key: "b"}}
	a.Add(b)
	var want Violations
	for i, k := range Kinds() {
		n := int64(1100 + 2*i)
		*k.Of(&want) = Tally{n, n + 2, time.Duration(n + 4), time.Duration(1000 + i + 3), i == 1}
	}
	want.Unjudged = 1138
	want.Evidence = []Evidence{{Violation: Overlap, Key: "b"}, {Violation: LateWork, Key: "a"}, {Violation: LateWork, Key: "b"}}
	check.DeepEqual(t, a, want)
}

// A lock that a fault deletes while its reply is on its way is lost, too, though its hold
// begins after the fault. The deadline of its lease tells.
func TestAWipeExcusesAHoldWhoseReplyWasOnItsWay(t *testing.T) {
	for ttl, excused := range map[time.Duration]int64{0: 0, time.Second: 1} {
		for _, key := range []int{0, -1} {
			th := newOracleTest(t)
			th.config.TTL = ttl
			th.wipeBegan(key, "flush", 100)
			th.wipeEnded(key, "flush", 105)
			th.enter(Hold{Client: 1}, 110, 1104) // its lease has begun at 104
			th.enter(Hold{Client: 2}, 120, 1120)
			th.wantViolations(violations{overlaps: 1, excused: excused})

			th = newOracleTest(t)
			th.config.TTL = ttl
			th.wipeBegan(key, "flush", 100)
			th.wipeEnded(key, "flush", 105)
			th.enter(Hold{Client: 1}, 110, 1106) // after the fault
			th.enter(Hold{Client: 2}, 120, 1120)
			th.wantViolations(violations{overlaps: 1})
		}
	}
}

// A client that enters twice may make its lock anew, with its second entry, after a fault
// has deleted it. Then its first exit frees the lock.
func TestAWipeBetweenTwoEntriesExcuses(t *testing.T) {
	for nested, want := range map[bool]violations{true: {overlaps: 1, excused: 1}, false: {overlaps: 1, foreign: 1}} {
		th := newOracleTest(t)
		th.config.TTL = time.Second
		asked := th.at(90)
		th.wipeBegan(0, "steal", 100)
		th.wipeEnded(0, "steal", 105)
		h := Hold{Client: 1, Asked: asked, Lease: leaseUntil{th.clock, time.Unix(0, 0).Add(1107 * time.Millisecond)}} // the second entry was at 107
		if nested {
			h.First = th.at(95)
		}
		first := enter(th.Oracle, h, th.at(110), 0)
		th.enter(Hold{Client: 2}, 120, 1120)
		th.Leave(first, th.at(125))
		th.Unlocked(first, th.at(125), th.at(126))
		th.wantViolations(want)
	}
}

// leased is the lease of a client process: its deadline may be a little early.
type leased struct {
	leaseUntil
	latest time.Time
}

func (l leased) Latest() time.Time { return l.latest }

// The audit's defect A6: a client that wrote before the end of its lease, but after the
// deadline that is early to be safe, counted as late.
func TestWorkBeforeTheLatestEndOfALeaseIsNotLate(t *testing.T) {
	th := newOracleTest(t)
	v := enter(th.Oracle, Hold{Client: 1, Lease: leased{leaseUntil{th.clock, th.at(1400)}, th.at(1500)}}, th.at(0), 0)
	check.False(t, th.Write(v, true, th.at(1450)), "a polite client wrote after its deadline")
	th.Write(v, false, th.at(1450))
	th.enter(Hold{Client: 2}, 1460, 9000)
	th.Write(v, false, th.at(1499))
	th.wantViolations(violations{})
	th.Write(v, false, th.at(1510))
	th.wantViolations(violations{late: 1, corrupt: 1})
	check.Equal(t, th.violations().LateWork.Longest, 10*time.Millisecond, "late by")
}

// A hold whose lease was over when the acquire returned is not judged, and is counted.
func TestAHoldThatIsOverAtItsBeginIsUnjudged(t *testing.T) {
	th := newOracleTest(t)
	th.config.Numbered = true
	th.enter(Hold{Client: 1, Fence: 7}, 0, 9000)
	th.enter(Hold{Client: 2, Fence: 6}, 100, 90)
	th.Settle(th.at(200))
	got := th.violations()
	check.True(t, got.Unjudged == 1 && got.Broken() == 0 && got.WorkOverlap.Count == 1, "%+v", got)
}

// A lease that was over when the next client entered, and that came to life again, overlaps
// with that client's: with the two in both orders of leaving. Mutation O3.
func TestALeaseThatComesToLifeAgainOverlaps(t *testing.T) {
	for _, firstLeavesFirst := range []bool{true, false} {
		th := newOracleTest(t)
		revived := &leaseUntil{th.clock, th.at(1000)}
		first := enter(th.Oracle, Hold{Client: 1, Lease: revived}, th.at(0), 0)
		second := th.enter(Hold{Client: 2}, 1100, 9000)
		th.wantViolations(violations{})
		revived.deadline = th.at(9000) // by a renewal
		if firstLeavesFirst {
			th.Leave(first, th.at(1200))
			th.Leave(second, th.at(1300))
		} else {
			th.Leave(second, th.at(1200))
			th.Leave(first, th.at(1300))
		}
		th.wantViolations(violations{overlaps: 1})
		if m := th.violations(); m.Overlap.Longest != 100*time.Millisecond || len(m.Evidence) != 1 || m.Evidence[0].Violation != Overlap {
			t.Errorf("%+v, evidence %+v", m.Overlap, m.Evidence)
		}
	}
}
