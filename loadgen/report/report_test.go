package report

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/loadgen"
)

func TestFilesAreInTheirUnits(t *testing.T) {
	r := Result{Seconds: []loadgen.Second{{Acquired: 7, Wait: loadgen.Latency{P50: 1500 * time.Microsecond, P90: 2 * time.Millisecond, P99: 3 * time.Second, Max: 4 * time.Second}}}}
	var file strings.Builder
	if err := r.WriteCSV(&file); err != nil {
		t.Fatal(err)
	}
	if want := "second,acquired,wait_p50_ms,wait_p90_ms,wait_p99_ms,wait_max_ms\n1,7,1.5,2,3000,4000\n"; file.String() != want {
		t.Errorf("got  %s\nwant %s", file.String(), want)
	}
}

// A recorder has every second of a run exactly once, whenever it was called.
func TestASecondsRecorderHasEverySecondOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var chronicle SecondsRecorder
		want := make([]int64, 151)
		r, err := loadgen.New(loadgen.Servers{Redis: piped(t)}, loadgen.Scenario{Clients: 3, Keys: loadgen.Keys{N: 9}, Seed: 4, Hold: loadgen.Exp(30 * time.Millisecond), Think: loadgen.Exp(100 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
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
		if len(got) != len(want) {
			t.Fatalf("%d seconds of %d", len(got), len(want))
		}
		for i, s := range got {
			if s.Acquired != want[i] || want[i] == 0 && i < 150 {
				t.Errorf("second %d: %d acquired, want %d", i+1, s.Acquired, want[i])
			}
		}
	})
}

// A report contains all settings: the run can be repeated from the report
// alone.
func TestAReportSaysHowTheClientsShareConnections(t *testing.T) {
	for want, s := range map[string]loadgen.Scenario{
		"7, each with its own connection": {Clients: 7},
		"300, on 100 connections":         {Clients: 300},
		"7, on 2 connections":             {Clients: 7, Conns: 2},
	} {
		var text strings.Builder
		if err := (Result{Scenario: s.WithDefaults()}).WriteText(&text, strings.Clone); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestTheReportHasTheErrorOfTheLastRelease(t *testing.T) {
	for unclean, want := range map[string]bool{"": false, "server is gone": true} {
		var text strings.Builder
		if err := (Result{Unclean: unclean}).WriteText(&text, func(s string) string { return s }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "not released: "+unclean); got != want {
			t.Errorf("%q: told %v in\n%s", unclean, got, text.String())
		}
	}
}

func TestTheLoadIsDescribedInAFewWords(t *testing.T) {
	for want, s := range map[string]loadgen.Scenario{
		"5 clients on one key":   {Clients: 5, Keys: loadgen.Keys{N: 1}},
		"5 clients on 2 keys":    {Clients: 5, Keys: loadgen.Keys{N: 2}},
		"6 clients on one key":   {Clients: 6, Keys: loadgen.Keys{N: 2, Pick: loadgen.PickOne}},
		"7 arrivals/s on 3 keys": {Clients: 5, Rate: 7, Keys: loadgen.Keys{N: 3}},
	} {
		if got := load(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
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
		if err := (Result{Scenario: r.Scenario(), Metrics: m}).WriteText(&text, strings.Clone); err != nil {
			t.Fatal(err)
		}
		if len(m.Faults) != len(want) {
			t.Fatalf("%d faults are reported, want %d", len(m.Faults), len(want))
		}
		for i, f := range m.Faults {
			if f.Struck != want[i].Struck || f.Why != want[i].Why {
				t.Errorf("fault %d: %+v, want %+v", i+1, f, want[i])
			}
			if !strings.Contains(text.String(), f.String()) {
				t.Errorf("the report does not say %q", f)
			}
		}
	})
}
