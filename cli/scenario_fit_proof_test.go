package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/loadgen"
)

// With LOCKTOP_PROOF: a load is recorded for 150 s, fitted, and run again for as long.
func TestALoadOfARecordingIsLikeTheRecordedOne(t *testing.T) {
	testtier.Proof(t, "it takes five minutes")
	at := "redis://" + server.ForTest(t).Addr()
	dir := t.TempDir()
	known, box, fitted := filepath.Join(dir, "known.yaml"), filepath.Join(dir, "a.lockrec"), filepath.Join(dir, "fitted.yaml")
	write(t, known, `{rate: 37/s, arrivals: poisson, keys: {pick: zipf, n: 3, skew: 0.4}, hold: "lognormal:40ms,200ms", clients: 60, duration: 150s}`)
	recorded := make(chan outcome)
	go func() { recorded <- locktop(t, "record", box, "-u", at, "--for", "153s") }()
	eventually(t, func() bool { _, err := os.Stat(box); return err == nil })
	first := loadOf(t, known, at)
	if r := <-recorded; r.code != exitFine {
		t.Fatal(r)
	}
	write(t, fitted, run(t, "scenarios", "--from", box))
	t.Log(readText(t, fitted))
	s, err := loadgen.Parse([]byte(readText(t, fitted)))
	must(t, err)
	rate := s.Rate
	for _, stage := range s.Stages {
		rate = max(rate, stage.Rate)
	}
	second := loadOf(t, fitted, at)
	for _, c := range []struct {
		what              string
		got, want, within float64
	}{
		{"rate", rate, first.Counts["offered"] / 150, 0.05},
		{"hold p50", s.Hold.Low.Seconds() * 1000, first.Latencies["held"].P50, 0.05},
		{"hold p99", s.Hold.High.Seconds() * 1000, first.Latencies["held"].P99, 0.15},
		{"skew", s.Keys.Skew, 0.4, 0.15},
		{"wait p50 of the second load", second.Latencies["wait"].P50, first.Latencies["wait"].P50, 0.2},
		{"wait p99 of the second load", second.Latencies["wait"].P99, first.Latencies["wait"].P99, 0.2},
	} {
		t.Logf("%s: %.4g, first load %.4g", c.what, c.got, c.want)
		if math.Abs(c.got-c.want) > c.within*c.want {
			t.Errorf("%s is %.4g, want %.4g ± %.0f %%", c.what, c.got, c.want, 100*c.within)
		}
	}
	t.Logf("the hold of the second load: p50 %.4g ms, p99 %.4g ms", second.Latencies["held"].P50, second.Latencies["held"].P99)
}

// loadFigures is a part of the report of a load.
type loadFigures struct {
	Counts    map[string]float64
	Latencies map[string]struct {
		P50 float64 `json:"p50_ms"`
		P99 float64 `json:"p99_ms"`
	}
}

func loadOf(t *testing.T, scenario, at string) (f loadFigures) {
	t.Helper()
	out := locktop(t, "load", scenario, "-u", at, "--json")
	if err := json.Unmarshal([]byte(out.out), &f); err != nil || out.code != exitFine {
		t.Fatalf("%d %v\n%s", out.code, err, out.errors)
	}
	return f
}
