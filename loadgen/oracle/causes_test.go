package oracle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
)

// explains reports whether an oracle explains a suspect by a trouble.
func explains(c Config, s suspect, troubles ...Trouble) bool {
	o := New(c)
	for _, t := range troubles {
		o.TroubleBegan(t)
		if !t.To.IsZero() {
			o.TroubleEnded(t.Cause, t.Client, t.Key, t.To)
		}
	}
	return o.excused(s)
}

// at returns a time in seconds.
func at(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }

// Each cause explains the violations that it can produce, and no others: no fault of a client
// makes a fence fall or lets two in, and nothing explains late work.
func TestACauseExplainsOnlyWhatItCanProduce(t *testing.T) {
	deletes := []Violation{Overlap, FenceOrder, ForeignUnlock, UnexplainedLoss, Overtaken}
	client := []Violation{UnexplainedLoss, Overtaken, ForeignUnlock}
	server := []Violation{UnexplainedLoss, Overtaken}
	for cause, want := range map[Cause][]Violation{
		"flush": deletes, "steal": deletes, "failover": deletes, "node-restart-empty": deletes, Restarted: deletes, LostKeys: deletes,
		"freeze": append([]Violation{Unnotified}, client...), "cut": client, "cut-replies": client, "slow": client, "crash": client,
		"pause": server, "stop": server, "node-down": server, Unanswered: server, Stalled: append([]Violation{Unnotified}, server...),
		"skew": nil, "forget": nil, "greedy": nil, "script-flush": nil,
	} {
		for _, kind := range Kinds() {
			v := kind.ID
			s := suspect{violation: v, since: at(10), at: at(15), client: 1, keys: []int{3}}
			got := explains(Config{}, s, Trouble{Cause: cause, Client: Everybody, Key: Everybody, From: at(11), To: at(12)})
			check.True(t, got == slices.Contains(want, v), "%s explains %s: %t", cause, v, got)
		}
	}
}

// A cause explains a violation of its client on its key, from its begin until its effects are over.
func TestACauseExplainsWhatItStrikes(t *testing.T) {
	trouble := func(cause Cause, client, key int, from, to float64) Trouble {
		return Trouble{Cause: cause, Client: client, Key: key, From: at(from), To: at(to)}
	}
	lasting := Trouble{Cause: "cut", Client: 1, Key: Everybody, From: at(1)}
	for _, c := range []struct {
		name string
		of   Violation
		by   Trouble
		want bool
	}{
		{"its own", UnexplainedLoss, trouble("cut", 1, Everybody, 11, 12), true},
		{"one that lasts", UnexplainedLoss, lasting, true},
		{"another client's", UnexplainedLoss, trouble("cut", 2, Everybody, 11, 12), false},
		{"a server's", UnexplainedLoss, trouble("node-down", Everybody, Everybody, 11, 12), true},
		{"long before", UnexplainedLoss, trouble("cut", 1, Everybody, 1, 9.4), false},
		{"just before", UnexplainedLoss, trouble("cut", 1, Everybody, 1, 9.6), true},
		{"later", UnexplainedLoss, trouble("cut", 1, Everybody, 15.1, 16), false},
		{"its key", Overlap, trouble("steal", Everybody, 3, 11, 11), true},
		{"another key", Overlap, trouble("steal", Everybody, 4, 11, 11), false},
		{"the other key of a set", UnexplainedLoss, trouble("steal", Everybody, 7, 11, 11), true},
		{"a deletion before the locks", Overlap, trouble("flush", Everybody, Everybody, 9, 9.9), false},
		{"a deletion when the lock was acquired", Overlap, trouble("flush", Everybody, Everybody, 9, 10), true},
		{"a deletion after the overlap", Overlap, trouble("flush", Everybody, Everybody, 15.1, 16), false},
	} {
		s := suspect{violation: c.of, since: at(10), at: at(15), client: 1, keys: []int{3, 7}}
		check.Equal(t, explains(Config{}, s, c.by), c.want, "%s", c.name)
	}
}

// One of five servers that does not answer costs no lease, three of them do. One of them
// that loses its data may let two in.
func TestAQuorumIsTroubledByAMajorityOfItsServers(t *testing.T) {
	one := func(cause Cause, server int) Trouble {
		return Trouble{Cause: cause, Client: Everybody, Key: Everybody, Server: server, From: at(10 + float64(server)), To: at(11 + float64(server))}
	}
	for _, c := range []struct {
		name string
		of   Violation
		by   []Trouble
		want bool
	}{
		{"one", UnexplainedLoss, []Trouble{one("node-down", 1)}, false},
		{"one for several reasons", UnexplainedLoss, []Trouble{one("node-down", 1), one(Unanswered, 1), one("stop", 1)}, false},
		{"two", UnexplainedLoss, []Trouble{one("node-down", 1), one(Unanswered, 2)}, false},
		{"three", UnexplainedLoss, []Trouble{one("node-down", 1), one(Unanswered, 2), one("stop", 3)}, true},
		{"two, and a third one cut off", UnexplainedLoss, []Trouble{one("node-down", 1), one("stop", 2), {Cause: "cut", Client: 1, Key: Everybody, Server: 4, From: at(12), To: at(13)}}, true},
		{"one cut off", UnexplainedLoss, []Trouble{{Cause: "cut", Client: 1, Key: Everybody, Server: 4, From: at(12), To: at(13)}}, false},
		{"one cut off from all", UnexplainedLoss, []Trouble{{Cause: "cut", Client: 1, Key: Everybody, From: at(12), To: at(13)}}, true},
		{"all", UnexplainedLoss, []Trouble{{Cause: "pause", Client: Everybody, Key: Everybody, From: at(11), To: at(12)}}, true},
		{"one without its data", Overlap, []Trouble{one("node-restart-empty", 1)}, true},
		{"the process of the clients", UnexplainedLoss, []Trouble{one(Stalled, 0)}, true},
	} {
		s := suspect{violation: c.of, since: at(10), at: at(15), client: 1, keys: []int{0}}
		check.Equal(t, explains(Config{Servers: 5}, s, c.by...), c.want, "%s", c.name)
	}
}

func TestARestartThatBecomesKnownLaterExcuses(t *testing.T) {
	th := newOracleTest(t)
	th.enter(Hold{Client: 1}, 0, 9000)
	th.enter(Hold{Client: 2}, 1000, 9000)
	th.Settle(th.at(999))
	th.wantViolations(violations{overlaps: 1})
	th.Troubled(Trouble{Cause: Restarted, Client: Everybody, Key: Everybody, From: th.at(400), To: th.at(1500)})
	th.Settle(th.at(2000))
	th.Settle(th.at(3000))
	th.wantViolations(violations{overlaps: 1, excused: 1})
	got, want := th.violations().Excuses(), "1 suspect explained: 1 overlap (restart)."
	check.True(t, got == want, "got %s, want %s", got, want)
}

// A reply that was on its way while a fault deleted its lock, and while another client
// acquired the lock and entered.
func TestAWipeExcusesAHoldThatEntersAfterItsSuccessor(t *testing.T) {
	th := newOracleTest(t)
	th.config.TTL, th.config.Numbered = time.Second, true
	th.Wipe(0, "flush", th.at(100))
	th.enter(Hold{Client: 2, Fence: 8}, 120, 1120)
	th.enter(Hold{Client: 1, Fence: 7}, 130, 1095) // its lease has begun at 95
	th.Settle(th.at(200))
	th.wantViolations(violations{overlaps: 1, excused: 1})
	if got := th.violations(); got.FenceOrder.Count != 0 || got.Excuses() != "2 suspects explained: 1 overlap (flush), 1 fence out of order (flush)." {
		t.Errorf("%d fences, %s", got.FenceOrder.Count, got.Excuses())
	}
}

// The same holds: the release of the successor, which entered first, has removed its own lock.
func TestAWipeExcusesAReleaseBesideAHoldThatEnteredLate(t *testing.T) {
	for wiped, foreign := range map[bool]int64{true: 0, false: 1} {
		th := newOracleTest(t)
		th.config.TTL = time.Second
		if wiped {
			th.Wipe(0, "flush", th.at(100))
		}
		successor := th.enter(Hold{Client: 2}, 120, 1120)
		th.enter(Hold{Client: 1}, 130, 1095) // its lease has begun at 95
		th.Leave(successor, th.at(150))
		th.Unlocked(successor, th.at(150), th.at(151))
		check.Equal(t, th.violations().ForeignUnlock.Count, foreign, "wiped %t: foreign unlocks", wiped)
	}
}

// Only a deletion after the holder with the larger fence acquired its lock lets the next one fall.
func TestADeletionExplainsTheNextFenceOnly(t *testing.T) {
	for wiped, want := range map[int]int64{5: 2, 15: 1, 25: 1, 35: 2} {
		th := newOracleTest(t)
		th.config.Numbered = true
		th.Wipe(0, "flush", th.at(wiped))
		for i := range 3 {
			th.Leave(th.enter(Hold{Client: i, Fence: 7}, 10+10*i, 9000), th.at(12+10*i))
		}
		th.Settle(th.at(100))
		check.Equal(t, th.violations().FenceOrder.Count, want, "deleted at %d: fences accused", wiped)
	}
}

// The audit's defect A3: a lock that is entered several times carried an excuse for as long
// as its client had waited.
func TestAWipeBeforeTheFirstEntryExcusesNothing(t *testing.T) {
	for first, excused := range map[int]int64{90: 1, 110: 0} {
		th := newOracleTest(t)
		th.Wipe(0, "flush", th.at(100))
		for client := range 2 {
			enter(th.Oracle, Hold{Client: client, Asked: th.at(10), First: th.at(first), Lease: leaseUntil{th.clock, th.at(9000)}}, th.at(150+client), 0)
		}
		th.wantViolations(violations{overlaps: 1, excused: excused})
	}
}

// A renewed lease was there when it was renewed: what happened long before the renewal does
// not explain its loss.
func TestALossIsExplainedSinceTheLastRenewal(t *testing.T) {
	for until, explained := range map[int]int64{7000: 0, 7600: 1} {
		for _, nested := range []bool{false, true} {
			th := newOracleTest(t)
			th.config.TTL = time.Second
			p := Hold{Client: 1}
			if nested { // the renewal may have been of a lock that a later entry has made anew
				p.First = th.at(1)
			}
			v := th.enter(p, 5000, 9000) // the newest renewal was at 8000
			th.Troubled(Trouble{Cause: "cut", Client: 1, Key: Everybody, From: th.at(6000), To: th.at(until)})
			th.Lost(v, th.at(8900))
			th.Settle(th.at(9000))
			want := explained
			if nested {
				want = 1
			}
			if got := th.violations(); got.UnexplainedLoss.Count != 1-want {
				t.Errorf("a cut until %d, nested %t: %d losses, %s", until, nested, got.UnexplainedLoss.Count, got.Excuses())
			}
		}
	}
}

func TestAClientProcessIsExcusedWhileAFaultMayHoldItUp(t *testing.T) {
	o := New(Config{})
	o.Troubled(Trouble{Cause: "cut", Client: 1, Key: Everybody, From: at(1), To: at(5)})
	for _, c := range []struct {
		client int
		since  float64
		want   bool
	}{{1, 3, true}, {1, 14.9, true}, {1, 15.1, false}, {2, 3, false}} {
		check.Equal(t, o.Excuses(c.client, at(c.since), at(20)), c.want, "client %d since %g s", c.client, c.since)
	}
	check.True(t, o.Violations(at(20)).Explained == nil, "it counts as an explained violation")
}

func TestTroublesOfOneKindInARowBecomeOne(t *testing.T) {
	o := New(Config{})
	for i := range 10 {
		o.Troubled(Trouble{Cause: Stalled, Client: Everybody, Key: Everybody, From: at(float64(i) / 4), To: at(float64(i)/4 + 0.1)})
		o.Troubled(Trouble{Cause: Unanswered, Client: Everybody, Key: Everybody, Server: 1, From: at(float64(i)), To: at(float64(i) + 0.1)})
		o.Troubled(Trouble{Cause: "flush", Client: Everybody, Key: Everybody, From: at(float64(i) / 100), To: at(float64(i) / 100)})
	}
	count := map[Cause]int{}
	for _, one := range o.troubles {
		count[one.Cause]++
	}
	check.True(t, count[Stalled] == 1 && count[Unanswered] == 10 && count["flush"] == 10 && len(o.Losses()) == 10,
		"%v, %d losses", count, len(o.Losses()))
}

func TestExplainedSuspectsAddUp(t *testing.T) {
	one := Explained{Violation: UnexplainedLoss, Cause: "freeze", Count: 3, Client: "client-2", Clients: 1}
	v := Violations{Explained: []Explained{one}}
	v.Add(Violations{Explained: []Explained{{Violation: Overlap, Cause: "flush", Count: 1}, one}})
	v.Add(Violations{Explained: []Explained{{Violation: UnexplainedLoss, Cause: "cut", Count: 12, Client: "client-7", Clients: 1}}})
	want := "19 suspects explained: 1 overlap (flush), 12 lost leases (cut of client-7), 6 lost leases (freeze of 2 clients)."
	check.Equal(t, v.Excuses(), want)
	check.True(t, one.Count == 3 && (Violations{}).Excuses() == "", "the parts have changed")
	for _, kind := range slices.Concat(rules[0].explains, rules[2].explains, rules[4].explains) {
		check.False(t, strings.HasPrefix(Explained{Violation: kind}.String(), "0 s "), "%s has no name", kind)
	}
}

// What troubles the clients does not count, also if troubles overlap.
func TestTheLongestCalm(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	freeze := func(from, to int) Trouble { return Trouble{Cause: "freeze", From: at(from), To: at(to)} }
	waits := func(client, from, to int) wait { return wait{client, at(from), at(to)} }
	all := Trouble{Cause: "pause", Client: Everybody, From: at(11), To: at(18)}
	for name, c := range map[string]struct {
		all   []Trouble
		want  int
		waits []wait
	}{
		"nothing":               {nil, 10, nil},
		"a short stall":         {[]Trouble{{Cause: Stalled, From: at(13), To: at(14)}}, 6, nil},
		"before and after":      {[]Trouble{freeze(1, 9), freeze(21, 30)}, 10, nil},
		"from before on":        {[]Trouble{freeze(1, 12)}, 8, nil},
		"one inside another":    {[]Trouble{freeze(11, 19), freeze(12, 13)}, 1, nil},
		"in the order of ends":  {[]Trouble{freeze(17, 18), freeze(12, 13)}, 4, nil},
		"it lasts":              {[]Trouble{{Cause: "cut", From: at(14), lasting: true}}, 4, nil},
		"the whole time":        {[]Trouble{freeze(9, 15), freeze(15, 20)}, 0, nil},
		"no crash, no deletion": {[]Trouble{{Cause: "crash", From: at(5), lasting: true}, {Cause: "steal", From: at(15), To: at(16)}}, 10, nil},
		"of another client":     {[]Trouble{freeze(9, 21)}, 10, []wait{waits(0, 5, 20), waits(1, 5, 20)}},
		"of all that wait":      {[]Trouble{freeze(9, 21)}, 0, []wait{waits(0, 5, 20)}},
		"of all that waited":    {[]Trouble{freeze(9, 21)}, 1, []wait{waits(0, 5, 20), waits(1, 19, 20), waits(2, 2, 9)}},
		"one gave up":           {[]Trouble{freeze(9, 21)}, 3, []wait{waits(0, 5, 20), waits(1, 5, 13)}},
		"of the server":         {[]Trouble{all}, 2, []wait{waits(0, 5, 20), waits(1, 5, 20)}},
	} {
		o := Oracle{troubles: c.all}
		check.Equal(t, o.calm(span{at(10), at(20), c.waits}), time.Duration(c.want)*time.Second, "%s", name)
	}
}
