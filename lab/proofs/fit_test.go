package proofs

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
	"locktop/loadgen"
)

// With LOCKTOP_PROOF: a load is recorded for 150 s, fitted, and run again for as long.
func TestALoadOfARecordingIsLikeTheRecordedOne(t *testing.T) {
	testtier.Proof(t, "it takes five minutes")
	at := "redis://" + servertest.RedisForTest(t).Addr()
	dir := t.TempDir()
	known, box, fitted := filepath.Join(dir, "known.yaml"), filepath.Join(dir, "a.lockrec"), filepath.Join(dir, "fitted.yaml")
	check.NoError(t, os.WriteFile(known, []byte(`{rate: 37/s, arrivals: poisson, keys: {pick: zipf, n: 3, skew: 0.4}, hold: "lognormal:40ms,200ms", clients: 60, duration: 150s}`), 0o600))
	recorded := make(chan labtest.Outcome)
	go func() { recorded <- labtest.Locktop(t, "record", box, "-u", at, "--for", "153s") }()
	labtest.Within(t, labtest.LongestWait, func() bool { _, err := os.Stat(box); return err == nil })
	first := reportOf(t, known, "-u", at)
	r := <-recorded
	check.Require(t, r.Code == 0, "%v", r)
	text := labtest.Printed(t, "scenarios", "--from", box)
	check.NoError(t, os.WriteFile(fitted, []byte(text), 0o600))
	t.Log(text)
	s := check.Must(loadgen.Parse([]byte(text)))(t)
	rate := s.Rate
	for _, stage := range s.Stages {
		rate = max(rate, stage.Rate)
	}
	second := reportOf(t, fitted, "-u", at)
	for _, c := range []struct {
		what              string
		got, want, within float64
	}{
		{"rate", rate, first.Figures["offered.count"] / 150, 0.05},
		{"hold p50", s.Hold.Low.Seconds() * 1000, 1000 * first.Figures["held.p50"], 0.05},
		{"hold p99", s.Hold.High.Seconds() * 1000, 1000 * first.Figures["held.p99"], 0.15},
		{"skew", s.Keys.Skew, 0.4, 0.15},
		{"wait p50 of the second load", 1000 * second.Figures["wait.p50"], 1000 * first.Figures["wait.p50"], 0.2},
		{"wait p99 of the second load", 1000 * second.Figures["wait.p99"], 1000 * first.Figures["wait.p99"], 0.2},
	} {
		t.Logf("%s: %.4g, first load %.4g", c.what, c.got, c.want)
		check.True(t, math.Abs(c.got-c.want) <= c.within*c.want, "%s is %.4g, want %.4g ± %.0f %%", c.what, c.got, c.want, 100*c.within)
	}
	t.Logf("the hold of the second load: p50 %.4g ms, p99 %.4g ms", 1000*second.Figures["held.p50"], 1000*second.Figures["held.p99"])
}

// reportOf runs a load and reads its report.
func reportOf(t *testing.T, args ...string) loadReport {
	t.Helper()
	got := labtest.Locktop(t, append([]string{"load", "--json"}, args...)...)
	return labtest.Decoded[loadReport](t, got.Out)
}
