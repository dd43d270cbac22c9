package fit

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen"
)

// made makes holds with known parameters.
type made struct {
	rates  []float64 // per second, one for each equal part of the window
	even   bool
	keys   int
	skew   float64
	hold   func(*rand.Rand) float64 // seconds
	window time.Duration
}

func (m made) holds(r *rand.Rand) []Hold {
	var all []Hold
	chances := zipf(m.keys, m.skew)
	for i := range chances[1:] {
		chances[i+1] += chances[i]
	}
	for at := 0.0; ; {
		rate := m.rates[min(int(at/m.window.Seconds()*float64(len(m.rates))), len(m.rates)-1)]
		if m.even {
			at += 1 / rate
		} else {
			at += r.ExpFloat64() / rate
		}
		if at >= m.window.Seconds() {
			return all
		}
		key, _ := slices.BinarySearch(chances, r.Float64())
		h := Hold{Key: min(key, m.keys-1), Kind: loadgen.Mutex, Begin: time.Duration(at * 1e9), TTL: 4998 * time.Millisecond, Ending: Released}
		h.End = h.Begin + time.Duration(m.hold(r)*1e9)
		if h.End > m.window {
			h.End, h.Ending = m.window, Running
		}
		all = append(all, h)
	}
}

func logNormalOf(p50, p99 float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 {
		return p50 * math.Exp(math.Log(p99/p50)/loadgen.SigmasOfP99*r.NormFloat64())
	}
}

func fitted(t *testing.T, m made) *Fit {
	t.Helper()
	f := check.Must(Scenario(m.holds(rand.New(rand.NewPCG(1, 2))), m.window))(t)
	_, err := loadgen.Parse(f.YAML())
	check.Require(t, err == nil, "%v\n%s", err, f.YAML())
	return f
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	t.Logf("%s: %.4g, true %.4g", what, got, want)
	check.True(t, math.Abs(got-want) <= tolerance*want, "%s is %.4g, want %.4g ± %.0f %%", what, got, want, 100*tolerance)
}

func TestKnownParametersAreFound(t *testing.T) {
	m := made{rates: []float64{20}, keys: 30, skew: 1.1, hold: logNormalOf(0.1, 0.8), window: 5 * time.Minute}
	s := fitted(t, m).Scenario
	near(t, "rate", s.Rate, 20, 0.05)
	near(t, "p50", s.Hold.Low.Seconds(), 0.1, 0.05)
	near(t, "p99", s.Hold.High.Seconds(), 0.8, 0.15)
	near(t, "skew", s.Keys.Skew, 1.1, 0.15)
	near(t, "keys", float64(s.Keys.N), 30, 0.15)
	if s.Arrivals != loadgen.Poisson || s.Hold.Shape != loadgen.ShapeLogNormal || s.Stages != nil || s.Duration != m.window || s.Lock.TTL != 5*time.Second {
		t.Errorf("%s", s.Marshal())
	}

	m.even, m.skew, m.keys = true, 0, 400
	m.hold = func(r *rand.Rand) float64 { return []float64{0.01, 2}[r.IntN(10)/9] }
	s = fitted(t, m).Scenario
	near(t, "share", s.Hold.Share, 0.1, 0.15)
	near(t, "keys", float64(s.Keys.N), 400, 0.02)
	if s.Arrivals != loadgen.Even || s.Hold.Low != 10*time.Millisecond || s.Hold.High != 2*time.Second || s.Keys.Pick != loadgen.PickUniform {
		t.Errorf("%s", s.Marshal())
	}
}

// A quarter of all holds is as long as the window or longer. Their mean in the window is a
// fraction of the true one.
func TestCensoredHoldsAreNotTakenForShortOnes(t *testing.T) {
	for _, tt := range []struct {
		shape loadgen.Shape
		hold  func(*rand.Rand) float64
		want  float64
	}{
		{loadgen.ShapeLogNormal, logNormalOf(30, 600), 30},
		{loadgen.ShapeExp, func(r *rand.Rand) float64 { return 80 * r.ExpFloat64() }, 80},
	} {
		f := fitted(t, made{rates: []float64{40}, keys: 9, hold: tt.hold, window: 2 * time.Minute})
		check.True(t, f.Scenario.Hold.Shape == tt.shape && !strings.Contains(f.Notes["hold"][0], "bad fit"),
			"%s: %s", f.Scenario.Hold, f.Notes["hold"])
		near(t, string(tt.shape), f.Scenario.Hold.Typical().Seconds(), tt.want, 0.05)
		if tt.shape == loadgen.ShapeLogNormal {
			near(t, "p99", f.Scenario.Hold.High.Seconds(), 600, 0.15)
		}
	}
}

func TestTheProductLimitEstimatorIsThatOfTheBook(t *testing.T) {
	// Klein and Moeschberger, Survival Analysis, table 4.1B: the times to relapse of 21
	// patients with 6-MP, in weeks.
	var samples []sample
	for _, at := range []float64{6, 6, 6, 7, 10, 13, 16, 22, 23, -6, -9, -10, -11, -17, -19, -20, -25, -32, -32, -34, -35} {
		samples = append(samples, sample{math.Abs(at), at < 0})
	}
	want := map[float64]float64{6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
	left := make(map[float64]float64)
	for _, s := range kaplanMeier(samples) {
		left[s.at] = 1 - s.below - s.share
	}
	for at, survival := range want {
		check.True(t, math.Abs(left[at]-survival) <= 0.001, "the survival after %v weeks is %.3f, want %.3f", at, left[at], survival)
	}
}

func TestABadFitSaysSo(t *testing.T) {
	three := func(r *rand.Rand) float64 { return []float64{0.01, 0.3, 9}[r.IntN(3)] }
	f := fitted(t, made{rates: []float64{20}, keys: 5, hold: three, window: time.Minute})
	check.Contains(t, f.Notes["hold"][0], "a bad fit")
	f = fitted(t, made{rates: []float64{20}, keys: 5, hold: logNormalOf(1, 9), window: time.Minute})
	for key, notes := range f.Notes {
		check.False(t, strings.Contains(strings.Join(notes, " "), "bad fit"), "%s: %s", key, notes)
	}
	// One key has half of the holds, and the other 1000 the same share each: no zipf.
	hot := made{rates: []float64{50}, keys: 1000, hold: logNormalOf(1, 9), window: time.Minute}.holds(rand.New(rand.NewPCG(1, 2)))
	for i := range hot {
		if i%2 == 0 {
			hot[i].Key = -1
		}
	}
	f = check.Must(Scenario(hot, time.Minute))(t)
	check.Contains(t, strings.Join(f.Notes["keys"], " "), "a bad fit")
}

func TestABurstBecomesAStage(t *testing.T) {
	f := fitted(t, made{rates: []float64{5, 5, 5, 40, 5, 5}, keys: 5, hold: logNormalOf(0.1, 0.3), window: time.Minute})
	stages := f.Scenario.Stages
	if len(stages) != 3 || !strings.Contains(f.Notes["arrivals"][0], "dispersion") || strings.Contains(f.Notes["arrivals"][0], "bad fit") {
		t.Fatalf("%s", f.YAML())
	}
	for i, want := range []loadgen.Stage{{For: 30 * time.Second, Rate: 5}, {For: 10 * time.Second, Rate: 40}, {For: 20 * time.Second, Rate: 5}} {
		near(t, "rate", stages[i].Rate, want.Rate, 0.25)
		near(t, "for", stages[i].For.Seconds(), want.For.Seconds(), 0.2)
	}
}

func TestTheLockIsThatOfMostHolds(t *testing.T) {
	all := made{rates: []float64{20}, keys: 5, hold: func(*rand.Rand) float64 { return 12 }, window: time.Minute}.holds(rand.New(rand.NewPCG(1, 2)))
	renewed := func(every time.Duration) []Hold {
		holds := slices.Clone(all)
		for i := range holds {
			if h := &holds[i]; every > 0 {
				h.Renewals = int((h.End - h.Begin) / every)
				h.Renewed = h.Begin + time.Duration(h.Renewals)*every
			}
		}
		return holds
	}
	for _, tt := range []struct {
		every time.Duration
		want  loadgen.Renew
	}{{1700 * time.Millisecond, loadgen.Renew{PerTTL: 3}}, {2 * time.Second, loadgen.Renew{Every: 2 * time.Second}}, {0, loadgen.Renew{Off: true}}} {
		f, err := Scenario(renewed(tt.every), time.Minute)
		check.True(t, err == nil && f.Scenario.Lock.Renew == tt.want, "renewed every %s: %+v, %v", tt.every, f.Scenario.Lock, err)
	}
	for i := range all {
		h := &all[i]
		h.Kind, h.Reader = loadgen.RW, i%4 > 0
		if i%5 == 0 {
			h.Kind, h.Reader = loadgen.Fair, false
		}
	}
	f, err := Scenario(all, time.Minute)
	check.Require(t, err == nil && f.Scenario.Lock.Kind == loadgen.RW, "%v, %v", f.Scenario.Lock, err)
	near(t, "reads", f.Scenario.Reads, 0.75, 0.05)
	for i := range all {
		all[i].Kind, all[i].Reader, all[i].Permits = loadgen.Semaphore, false, 7
	}
	if f, err = Scenario(all, time.Minute); err != nil || f.Scenario.Lock.Permits != 7 {
		t.Fatal(f.Scenario.Lock, err)
	}
}

// Locks that always end by expiry are held until then. If few do, their holders have crashed.
func TestAnExpiryIsAnEndOnlyIfItIsTheUsualOne(t *testing.T) {
	for _, tt := range []struct {
		each int
		want loadgen.Dist
	}{{1, loadgen.Const(time.Second)}, {20, loadgen.Const(100 * time.Millisecond)}} {
		holds := made{rates: []float64{20}, keys: 5, hold: func(*rand.Rand) float64 { return 0.1 }, window: time.Minute}.holds(rand.New(rand.NewPCG(1, 2)))
		for i := range holds {
			if i%tt.each == 0 {
				holds[i].End, holds[i].Ending = holds[i].Begin+time.Second, Expired
			}
		}
		f := check.Must(Scenario(holds, time.Hour))(t)
		if got := f.Scenario.Hold; math.Abs(got.Typical().Seconds()-tt.want.Mean.Seconds()) > 0.2*tt.want.Mean.Seconds() {
			t.Errorf("with an expiry in %d holds, the hold is %s, want %s: %s", tt.each, got, tt.want, f.Notes["hold"])
		}
	}
}

func TestTheThinkTimeIsThatBetweenTheHoldsOfAnOwner(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var holds []Hold
	for owner := 1; owner <= 10; owner++ {
		for at := time.Duration(0); at < time.Minute; {
			at += time.Duration(r.ExpFloat64() * float64(time.Second))
			h := Hold{Key: 1, Owner: owner, Kind: loadgen.Mutex, Begin: at, End: at + 10*time.Millisecond, Ending: Released}
			if at = h.End; at < time.Minute {
				holds = append(holds, h)
			}
		}
	}
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	f, err := Scenario(holds, time.Minute)
	check.Require(t, err == nil && f.Scenario.Think.Shape == loadgen.ShapeExp && strings.Contains(f.Notes["think"][0], "with 10 clients"),
		"%v, %v, %v", f.Scenario.Think, f.Notes["think"], err)
	near(t, "think", f.Scenario.Think.Mean.Seconds(), 1, 0.12)
}

func TestFewHoldsAreEnough(t *testing.T) {
	_, err := Scenario(nil, time.Minute)
	check.True(t, err == ErrNoHolds, "%v", err)
	for n := range 5 {
		var holds []Hold
		for i := range n + 1 {
			holds = append(holds, Hold{Key: i, Kind: loadgen.Mutex, Begin: time.Duration(i) * time.Second, End: time.Minute, Ending: Ending(i % 3)})
		}
		f := check.Must(Scenario(holds, time.Minute))(t)
		_, err := loadgen.Parse(f.YAML())
		check.True(t, err == nil, "%v\n%s", err, f.YAML())
	}
}
