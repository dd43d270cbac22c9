package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/scenarios"
)

func TestFilesAreInTheirUnits(t *testing.T) {
	r := Result{Seconds: []loadgen.Second{{Clients: 6, Acquired: 7, Errors: 1, Lost: 2, Overlaps: 3, Faults: 4, Wait: loadgen.Latency{P50: 1500 * time.Microsecond, P90: 2 * time.Millisecond, P99: 3 * time.Second, Max: 4 * time.Second}}}}
	var file strings.Builder
	check.NoError(t, r.WriteCSV(&file))
	want := "second,clients,acquired,errors,lost_or_expired,overlaps,faults,wait_p50_ms,wait_p90_ms,wait_p99_ms,wait_max_ms\n1,6,7,1,2,3,4,1.5,2,3000,4000\n"
	check.True(t, file.String() == want, "got  %s\nwant %s", file.String(), want)
}

func TestASecondsRecorderHasEverySecondOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var chronicle SecondsRecorder
		want := make([]int64, 151)
		r, err := loadgen.New(loadgen.Servers{Redis: piped(t)}, loadgen.Scenario{Clients: 2, Keys: loadgen.Keys{N: 9}, Seed: 4, Hold: loadgen.Exp(30 * time.Millisecond), Think: loadgen.Const(600 * time.Millisecond)})
		check.NoError(t, err)
		began := time.Now()
		r.Listen(func(e loadgen.Event) {
			if e.Kind == loadgen.Acquired {
				want[int(e.At.Sub(began)/time.Second)]++
			}
		})
		running(t, r)
		for _, pause := range []float64{0.5, 0.25, 1, 30, 0, 60.5, 57.75} {
			time.Sleep(time.Duration(pause * float64(time.Second)))
			chronicle.Add(r.Metrics())
		}
		time.Sleep(400 * time.Millisecond)
		stop(t, r)
		chronicle.Add(r.Metrics())
		chronicle.Add(r.Metrics())
		got := chronicle.Seconds()
		check.Require(t, len(got) == len(want), "%d seconds of %d", len(got), len(want))
		for i, s := range got {
			check.True(t, s.Acquired == want[i] && (want[i] != 0 || i >= 150), "second %d: %d acquired, want %d", i+1, s.Acquired, want[i])
		}
	})
}

// A report contains all settings: the run can be repeated from the report alone.
func TestAReportSaysHowTheClientsShareConnections(t *testing.T) {
	for want, s := range map[string]loadgen.Scenario{
		"7, each with its own connection": {Clients: 7},
		"300, on 100 connections":         {Clients: 300},
		"7, on 2 connections":             {Clients: 7, Conns: 2},
	} {
		var text strings.Builder
		check.NoError(t, (Result{Scenario: s.WithDefaults()}).WriteText(&text, strings.Clone))
		check.Contains(t, text.String(), want)
	}
}

func TestTheReportHasTheErrorOfTheLastRelease(t *testing.T) {
	for unclean, want := range map[string]bool{"": false, "server is gone": true} {
		var text strings.Builder
		check.NoError(t, (Result{Unclean: unclean}).WriteText(&text, func(s string) string { return s }))
		check.Equal(t, strings.Contains(text.String(), "not released: "+unclean), want, "%q: told in\n%s", unclean, text.String())
	}
}

func TestTheLoadIsDescribedInAFewWords(t *testing.T) {
	for want, s := range map[string]loadgen.Scenario{
		"5 clients on one key":   {Clients: 5, Keys: loadgen.Keys{N: 1}},
		"5 clients on 2 keys":    {Clients: 5, Keys: loadgen.Keys{N: 2}},
		"6 clients on one key":   {Clients: 6, Keys: loadgen.Keys{N: 2, Pick: loadgen.PickOne}},
		"7 arrivals/s on 3 keys": {Clients: 5, Rate: 7, Keys: loadgen.Keys{N: 3}},
	} {
		check.Equal(t, load(s), want)
	}
}

func TestAFaultThatDidNotOccurIsReportedWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), loadgen.Scenario{
			Clients: 5, Keys: loadgen.Keys{N: 100}, Hold: loadgen.Const(10 * time.Millisecond), Duration: 3 * time.Second,
			Faults: []loadgen.Fault{
				{At: time.Second, Kind: loadgen.Partition, For: time.Second},
				{At: time.Second, Kind: loadgen.Partition, Client: 9, For: time.Second},
				{At: 40 * time.Second, Kind: loadgen.Crash},
				{At: 2 * time.Second, Kind: loadgen.Greedy, Clients: 7, For: time.Second},
			},
		})
		<-r.Done()
		m := r.Metrics()
		want := []loadgen.FaultOutcome{
			{Struck: 1}, {Why: "there were only 5 clients"}, {Why: "the run ended before its time"}, {Struck: 5, Why: "there were only 5 clients"},
		}
		var text strings.Builder
		check.NoError(t, (Result{Scenario: r.Scenario(), Metrics: m}).WriteText(&text, strings.Clone))
		check.Require(t, len(m.Faults) == len(want), "%d faults are reported, want %d", len(m.Faults), len(want))
		for i, f := range m.Faults {
			check.True(t, f.Struck == want[i].Struck && f.Why == want[i].Why, "fault %d: %+v, want %+v", i+1, f, want[i])
			check.Contains(t, text.String(), f.String(), "the report")
		}
	})
}

// A report for people begins with the verdict, and then says what the scenario is to show, and
// whether it was seen.
func TestAReportBeginsWithTheVerdictAndTheClaim(t *testing.T) {
	scenario := loadgen.Scenario{
		Name: "scene", Caption: "First. Second <b>.", Watch: "the figures",
		Expect: []loadgen.Threshold{{Figure: "late_work.count", Op: ">"}, {Figure: "wait.max", Op: ">", Value: 1}},
		Faults: []loadgen.Fault{{Kind: loadgen.Crash}},
	}
	for _, c := range []struct {
		late    int64
		wait    time.Duration
		oracles int
		claim   string
	}{
		{3, 1500 * time.Millisecond, 0, "seen: late_work.count 3 (> 0), wait.max 1.5 s (> 1s)"},
		{3, 900 * time.Millisecond, 0, "not seen: wait.max 900 ms (> 1s); seen: late_work.count 3 (> 0)"},
		{0, 0, 0, "not seen: late_work.count 0 (> 0), wait.max unknown: there was not one sample (> 1s)"},
		{3, 1500 * time.Millisecond, 2, "seen by each agent among its own clients: late_work.count 3 (> 0), wait.max 1.5 s (> 1s)"},
	} {
		r := Result{Scenario: scenario.WithDefaults(), Unclean: "gone"}
		m := &r.Metrics
		m.Acquired, m.Oracles, m.Violations.LateWork.Count, m.Latency.Wait.Max, m.Latency.Wait.Count = 7, c.oracles, c.late, c.wait, int64(c.wait)
		m.Faults = []loadgen.FaultOutcome{{Fault: r.Scenario.Faults[0], Struck: 1}}
		var text, page strings.Builder
		check.NoError(t, errors.Join(r.WriteText(&text, strings.Clone), r.WriteHTML(&page)))
		inOrder(t, text.String(), "scene: ", r.Verdict().Text()+"\n", "\nnot released: gone\n", "\nFirst. Second <b>.\n", "\nwatch  the figures\n", "\nclaim  "+c.claim+"\n", "\nran ", "\nfault ", "\narrivals ", "\noverlap ")
		escaped := strings.NewReplacer(">", "&gt;").Replace
		inOrder(t, page.String(), "<h1>scene", escaped(r.Verdict().Text()), "First. Second &lt;b&gt;.", "<b>watch</b> the figures", "<b>claim</b> "+escaped(c.claim), "<svg ")
	}
}

// inOrder fails the test if the parts are not in the text, each after the one before.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("no %q after the part before in\n%s", part, text)
			return
		}
		rest = part[len(part)-1:] + after // a line break may belong to two parts
	}
}

func TestAReportHasThreeViolationsOfAKind(t *testing.T) {
	var r Result
	for i := range 40 {
		e := oracle.Evidence{Violation: oracle.WorkOverlap, Key: fmt.Sprintf("k%d;", i), First: oracle.Side{Client: 1, Inside: true}, Second: oracle.Side{Client: 2}}
		if i%2 == 1 {
			e.Violation = oracle.StaleWriteAccepted
		}
		r.Metrics.Violations.Evidence = append(r.Metrics.Violations.Evidence, e)
	}
	var text, page strings.Builder
	check.NoError(t, errors.Join(r.WriteText(&text, strings.Clone), r.WriteHTML(&page)))
	for form, report := range map[string]string{"text": text.String(), "HTML": page.String()} {
		if a, b, still := strings.Count(report, "work_overlap at "), strings.Count(report, "stale_write_accepted at "), strings.Count(report, " (still inside), deadline "); a != 3 || b != 3 || still != 6 {
			t.Errorf("%s: %d overlaps of work, %d corrupt writes, %d clients inside:\n%s", form, a, b, still, report)
		}
		check.True(t, strings.Contains(report, " on k0;") && strings.Contains(report, " on k5;") && !strings.Contains(report, " on k6;"),
			"%s does not have the first ones:\n%s", form, report)
	}
}

func TestTheNumberOfAttemptsWithoutALockIsGrammatical(t *testing.T) {
	for n, want := range map[int64]string{1: "The waits include 1 attempt that", 2: "The waits include 2 attempts that"} {
		var r Result
		r.Metrics.Latency.Wait = loadgen.Latency{Count: 9, Censored: n}
		var text strings.Builder
		check.NoError(t, r.WriteText(&text, strings.Clone))
		check.Contains(t, text.String(), want)
	}
}

func TestEverySceneNamesAFigureOfTheReport(t *testing.T) {
	for _, s := range scenarios.All() {
		check.True(t, slices.ContainsFunc(loadgen.FigureNames(), func(name string) bool { return strings.Contains(s.Watch, loadgen.Label(name)) }),
			"%s: there is no figure in %q", s.Name, s.Watch)
	}
}

func TestAReportNamesTheLibraryOfClientProcesses(t *testing.T) {
	r := Result{Scenario: loadgen.Scenario{Lock: loadgen.Lock{Exec: "./client"}}.WithDefaults()}
	r.Metrics.Library = "redsync 4"
	check.Equal(t, r.Lock(), "redsync 4 (client process)")
}
