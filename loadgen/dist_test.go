package loadgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
)

func take(n int, s Scenario, client int) []iteration {
	random, keys := rand.New(rand.NewPCG(s.Seed, uint64(client))), newPicker(s.Keys)
	all := make([]iteration, n)
	for i := range all {
		all[i] = choose(random, &s, keys)
	}
	return all
}

func TestSameSeedSameChoices(t *testing.T) {
	s := Scenario{Seed: 42}.WithDefaults()
	a, b := take(1000, s, 7), take(1000, s, 7)
	check.True(t, slices.Equal(a, b), "one client, one seed, two sequences")
	a, b = take(10, s, 7), take(10, s, 8)
	check.True(t, !slices.Equal(a, b), "two clients choose alike")
	other := s
	other.Seed = 43
	a, b = take(10, s, 7), take(10, other, 7)
	check.True(t, !slices.Equal(a, b), "two seeds, one sequence")
}

func TestAShareIsWrittenAsAPercentage(t *testing.T) {
	for share, want := range map[float64]string{0: "0%", 0.07: "7%", 0.5: "50%", 1: "100%", 0.125: "12.5%", 1.0 / 3: "0.3333333333333333"} {
		check.Equal(t, FormatShare(share), want, "%g", share)
	}
}

func TestAnEventOfNoClientHasNoOwner(t *testing.T) {
	for client, want := range map[int]string{0: "", 1: "client-1", 30: "client-30"} {
		check.Equal(t, (Event{Client: client}).Owner(), want, "the owner of client %d", client)
	}
}

func TestKeysOfEachPickHaveTheirChances(t *testing.T) {
	const n = 100_000
	share := func(k Keys) []float64 {
		p, r := newPicker(Scenario{Keys: k}.WithDefaults().Keys), rand.New(rand.NewPCG(3, 4))
		got := make([]float64, k.N)
		for range n {
			got[p.pick(r)] += 1.0 / n
		}
		return got
	}
	for _, c := range []struct {
		keys Keys
		want []float64
	}{
		{Keys{Pick: PickUniform, N: 4}, []float64{0.25, 0.25, 0.25, 0.25}},
		{Keys{Pick: PickOne, N: 3}, []float64{1, 0, 0}},
		{Keys{Pick: PickHotspot, N: 3}, []float64{0.9, 0.05, 0.05}},
		{Keys{Pick: PickHotspot, N: 3, Skew: 0.4}, []float64{0.4, 0.3, 0.3}},
		{Keys{Pick: PickHotspot, N: 2, Skew: 1}, []float64{1, 0}},
		{Keys{Pick: PickHotspot, N: 1}, []float64{1}},
		{Keys{Pick: PickZipf, N: 3, Skew: 1}, []float64{6.0 / 11, 3.0 / 11, 2.0 / 11}},
		{Keys{Pick: PickZipf, N: 1}, []float64{1}},
		{Keys{Pick: PickZipf, N: 2}, []float64{0.6819, 0.3181}}, // skew 1.1: 1 to 2^-1.1
	} {
		got := share(c.keys)
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 0.01 {
				t.Errorf("%+v: %.3f, want %.3f", c.keys, got, c.want)
				break
			}
		}
	}
}

// One client is busy for the whole run, with one arrival per second: arrival 0 is served, those of 1 to 10 s are not.
func TestArrivalsWithoutAClientCountAsLongAsTheyWaited(t *testing.T) {
	m := after(t, Scenario{Clients: 1, Keys: Keys{N: 1}, Rate: 1, Hold: Const(time.Hour), Duration: 10 * time.Second})[0]
	check.True(t, m.Arrivals == 1 && m.Backlog == 10 && m.Latency.Wait.Count == 11 && m.Latency.Wait.Censored == 10,
		"%d arrivals, %d without a client, %d waits, %d of them cut off", m.Arrivals, m.Backlog, m.Latency.Wait.Count, m.Latency.Wait.Censored)
	w := m.Latency.Wait
	check.True(t, w.Max == 9*time.Second && m.Fairness.Starved == 9*time.Second && w.P50.Round(time.Second) == 4*time.Second,
		"the first of them waited for 9 s: %+v, longest %s", m.Latency.Wait, m.Fairness.Starved)
}

// If the generator has no free client, the lock is not blamed: no attempt was made.
func TestAnArrivalWithoutAClientDoesNotWaitAtTheLock(t *testing.T) {
	m := after(t, Scenario{
		Clients: 1, Rate: 10, Keys: Keys{N: 5}, Lock: Lock{TTL: 100 * time.Millisecond}, Hold: Const(time.Second), Seed: 1,
	}, 20*time.Second)[0]
	check.False(t, m.Latency.Handoff.Count > 0 || m.Violations.StuckKey.Count > 0 || m.Acquired < 18 || m.Backlog < 100,
		"%d hand-offs, %d times stuck, %d acquired, %d without a client", m.Latency.Handoff.Count, m.Violations.StuckKey.Count, m.Acquired, m.Backlog)
}
