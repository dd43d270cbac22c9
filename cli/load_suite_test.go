package cli

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/report"
)

func TestARowOfTheSuiteIsJudgedByItsRun(t *testing.T) {
	never := []loadgen.FaultOutcome{{Fault: loadgen.Fault{Kind: loadgen.Freeze}, Why: "the run ended before its time"}}
	for _, c := range []struct {
		change func(m *loadgen.Metrics, s *loadgen.Scenario)
		result string
		why    string
		exit   int
	}{
		{func(*loadgen.Metrics, *loadgen.Scenario) {}, report.Pass, "7 holds", exitFine},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Violations.Overlap.Count = 3 }, report.Fail, "two clients held the lock at the same time 3 times (--seed 5)", exitUnsafe},
		{func(m *loadgen.Metrics, s *loadgen.Scenario) {
			m.Violations.Overtaken.Count, s.Lock.Kind = 1, "classic/blind-delete"
		}, report.Fail, "served before another", exitUnsafe},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) {
			m.Violations.Overlap = oracle.Tally{Count: 1, Excused: 1}
		}, report.Pass, "7 holds", exitFine},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Acquired = 0 }, report.NotJudged, "no client acquired a lock", exitThreshold},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Acquired, m.Violations.StuckKey.Count = 0, 1 }, report.Fail, "no client acquired a lock", exitFailure},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) {
			m.Acquired, m.Errors, m.LastErr = 0, 1, "client: it did not say hello in time: 30s"
		}, report.NotJudged, "say hello", exitThreshold},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Acquired, m.Errors, m.LastErr = 0, 1, "READONLY" }, report.Fail, "READONLY", exitFailure},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Acquired = 1 }, report.NotJudged, "one hold", exitFine},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Faults = never }, report.NotJudged, "its fault never struck: the run ended before its time", exitFine},
		{func(m *loadgen.Metrics, s *loadgen.Scenario) {
			s.Lock.Kind, m.Stall.Longest, m.Violations.Overlap = loadgen.Exec, time.Second, oracle.Tally{Count: 1, Longest: time.Millisecond}
		}, report.NotJudged, "may have been late", exitThreshold},
		{func(m *loadgen.Metrics, _ *loadgen.Scenario) { m.Outage.Total = time.Second }, report.NotJudged, "A server did not answer", exitThreshold},
		{func(_ *loadgen.Metrics, s *loadgen.Scenario) {
			s.Thresholds = []loadgen.Threshold{{Figure: "acquired.count", Op: ">", Value: 9}}
		}, report.Fail, "threshold missed", exitThreshold},
	} {
		r := report.Result{Scenario: loadgen.Scenario{Seed: 5}.WithDefaults(), Metrics: loadgen.Metrics{Counts: loadgen.Counts{Acquired: 7}}}
		c.change(&r.Metrics, &r.Scenario)
		row, err := judgeRow(r)
		exit := exitFine
		if err != nil {
			exit = asExitError(err).code
		}
		check.True(t, row.Result == c.result && strings.Contains(row.Why, c.why) && exit == c.exit, "%s, %q, %v; not %s, %q, %d", row.Result, row.Why, err, c.result, c.why, c.exit)
	}
}

func TestAKindShowsItsPointWithoutFurtherFlags(t *testing.T) {
	for kind, want := range map[string]string{"rw": "reads: 80%", "reentrant": "depth: 3", "rw --reads 10%": "reads: 10%"} {
		args := append([]string{"load", "-u", "redis://" + servertest.RedisForTest(t).Addr(), "--duration", "500ms", "--json", "--kind"}, strings.Fields(kind)...)
		locktop(t, args...).prints(t, exitFine, want)
	}
}

func TestTheSuiteSaysWhichRowsItCannotJudge(t *testing.T) {
	on := []string{"load", "--suite", "-u", "redis://" + servertest.RedisForTest(t).Addr(), "--kind", "mutex", "--hold", "1ms", "--duration", "300ms"}
	got := locktop(t, on...)
	got.prints(t, exitFine, "order goes with fair, not with mutex", "permits go with a semaphore", "only a quorum has more than one", "28 rows")
	locktop(t, append(on, "--repeat", "0")...).says(t, exitUsage, "--repeat must be 1 or more")
	locktop(t, append(on, "nosuch")...).says(t, exitUsage, "no row called", "there are hot-key, ")
	locktop(t, "load", "--repeat", "3").says(t, exitUsage, "--repeat goes with --suite")
}
