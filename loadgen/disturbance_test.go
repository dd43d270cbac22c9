package loadgen

import (
	"errors"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen/oracle"
)

// outageTest plays the replies of servers.
type outageTest struct{ disturbances }

func newOutageTest() *outageTest {
	return &outageTest{disturbances{oracle: oracle.New(oracle.Config{}), silent: make(map[int]*silent)}}
}

func (o *outageTest) at(ms int) time.Time {
	return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond)
}

// reply records a reply to a request at asked, or its error, after one that was answered.
func (o *outageTest) reply(server, answered, asked, now int, err error) {
	o.recordReply(server, o.at(answered), o.at(asked), o.at(now), 10*time.Millisecond, err)
}

func (o *outageTest) outageNow() Outage {
	var m Metrics
	o.addTo(&m)
	return m.Outage
}

// The audit's defect A7: an outage of 1.5 s was counted as 1.02 s in all and 1.13 s at the longest.
func TestAnOutageLastsFromTheNewestAnsweredRequestToTheNextAnswer(t *testing.T) {
	o, ms := newOutageTest(), time.Millisecond
	o.reply(0, 0, 0, 400, nil) // too short to be reported
	check.Equal(t, o.outageNow(), Outage{}, "a late answer")
	o.reply(0, 1000, 1100, 2100, errors.New("timeout"))
	check.Equal(t, o.outageNow(), Outage{Total: 1100 * ms, Longest: 1100 * ms, Error: "timeout"}, "so far")
	o.reply(1, 2000, 2000, 2700, nil) // of another server
	o.reply(0, 1000, 2200, 2500, nil)
	want := Outage{Total: 2200 * ms, Longest: 1500 * ms, Error: "timeout"}
	check.Equal(t, o.outageNow(), want, "it began at 1 s and ended at 2.5 s")
	o.reply(0, 2500, 2600, 2601, errors.New("reset"))
	o.reply(0, 2500, 2602, 2603, nil)
	want.Total, want.Error = want.Total+103*ms, "reset"
	o.reply(0, 2603, 2700, 2701, nil)
	check.Equal(t, o.outageNow(), want, "after it")
}

func TestAnOutageDuringAFaultDoesNotCount(t *testing.T) {
	o := newOutageTest()
	o.faulted(1, o.at(5000))
	o.reply(0, 5000, 5000, 7000, errors.New("down"))
	o.recordRestart(0, o.at(5000), o.at(7000))
	o.faulted(-1, o.at(7000))
	o.reply(0, 5000, 9000, 9900, nil) // it began during the fault
	o.reply(0, 9900, 9950, 9951, nil)
	check.Equal(t, o.outageNow(), Outage{}, "a fault of the scenario counts")
	o.reply(0, 10_000, 10_000, 10_600, nil)
	o.recordRestart(0, o.at(10_000), o.at(10_600))
	check.Equal(t, o.outageNow(), (Outage{Total: 600 * time.Millisecond, Longest: 600 * time.Millisecond, Lost: 1}), "after the fault")
}

func TestAStallIsSummedUp(t *testing.T) {
	o := newOutageTest()
	o.recordStall(o.at(0), o.at(300))
	o.recordStall(o.at(1000), o.at(1100))
	var m Metrics
	o.addTo(&m)
	check.Equal(t, m.Stall, Stall{Total: 400 * time.Millisecond, Longest: 300 * time.Millisecond})
}

// A fault that is too short to cost a lease explains no loss.
func TestAFaultIsCostlyIfItMayCostALease(t *testing.T) {
	l := Lock{Kind: Mutex, TTL: 8 * time.Second} // 1 s
	for _, c := range []struct {
		fault Fault
		want  bool
	}{
		{Fault{Kind: Slow, Delay: time.Millisecond}, false},
		{Fault{Kind: Slow, Delay: 600 * time.Millisecond, Jitter: 400 * time.Millisecond}, true},
		{Fault{Kind: Freeze, For: 999 * time.Millisecond}, false},
		{Fault{Kind: Freeze, For: time.Second}, true},
		{Fault{Kind: Freeze}, true},
		{Fault{Kind: Pause, For: 10 * time.Millisecond}, false},
		{Fault{Kind: NodeDown, For: time.Millisecond}, true},
		{Fault{Kind: Flush}, true},
		{Fault{Kind: Crash, For: time.Millisecond}, true},
		{Fault{Kind: Skew, By: time.Hour}, false},
		{Fault{Kind: ScriptFlush}, false},
		{Fault{Kind: Greedy}, false},
		{Fault{Kind: Leak}, false},
	} {
		check.Equal(t, c.fault.costly(l), c.want, "%+v", c.fault)
	}
}

func TestEachCostlyFaultExplainsSomething(t *testing.T) {
	for _, kind := range FaultKinds() {
		o := oracle.New(oracle.Config{})
		o.TroubleBegan(oracle.Trouble{Cause: oracle.Cause(kind), Client: 1, Key: oracle.Everybody})
		costly := Fault{Kind: kind, Delay: time.Hour}.costly(Lock{TTL: time.Second})
		check.Equal(t, o.Excuses(1, time.Now(), time.Now()), costly, "%s explains something", kind)
	}
}

func TestTheVerdictSaysWhatWasExplained(t *testing.T) {
	s := Scenario{
		Clients: 3, Keys: Keys{N: 1}, Seed: 1, Hold: Const(500 * time.Millisecond), Think: Const(10 * time.Millisecond), Lock: Lock{TTL: time.Second},
		Faults: []Fault{{At: time.Second, Kind: Freeze, Client: 1, For: 3 * time.Second}}, Duration: 10 * time.Second,
	}
	m := after(t, s)[0]
	want := oracle.Explained{Violation: oracle.UnexplainedLoss, Cause: "freeze", Count: 1, Client: "client-1", Clients: 1}
	check.Require(t, len(m.Violations.Explained) == 1, "explained: %+v", m.Violations.Explained)
	want.Why = m.Violations.Explained[0].Why
	check.True(t, m.Violations.Explained[0] == want && want.Why != "", "explained: %+v", m.Violations.Explained)
	v := m.Verdict(s.WithDefaults())
	check.True(t, v.Safe && strings.Contains(v.Text(), "1 suspect explained: 1 lost lease (freeze of client-1)."), "%t: %s", v.Safe, v.Text())
}
