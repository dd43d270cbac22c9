package fit

import (
	"maps"
	"math"
	"slices"
	"sort"

	"locktop/loadgen"
)

// keys sets the number of keys and how the holds choose among them.
func (f *Fit) keys(holds []Hold) {
	byKey, n := make(map[int]int), float64(len(holds))
	for _, h := range holds {
		byKey[h.Key]++
	}
	counts := slices.Sorted(maps.Values(byKey))
	k := keysOf(counts, n)
	f.Scenario.Keys = k
	f.Note("keys", "From %d holds of %d keys.", len(holds), len(counts))
	shares := zipf(k.N, k.Skew)
	seen, fitted := 0.0, 0.0
	for i := range min(len(counts), 5) {
		seen, fitted = seen+float64(counts[len(counts)-1-i])/n, fitted+shares[i]
		if fits := map[bool]string{true: ", a bad fit"}[math.Abs(seen-fitted) > 0.05+4*math.Sqrt(fitted*(1-fitted)/n)]; i == 0 || i == 4 || fits != "" {
			f.Note("keys", "Share of the %d busiest: %.1f %% of the holds, and %.1f %% in this scenario%s.", i+1, 100*seen, 100*fitted, fits)
		}
	}
}

// keysOf returns the keys for the number of holds of each. The skew is that with which two
// holds have the same key as often; the number is that of which as many keys would be seen,
// at most 20 times as many.
// Neither depends on the order of the counts, which chance alone makes uneven.
func keysOf(counts []int, n float64) loadgen.Keys {
	pairs := 0.0
	for _, c := range counts {
		pairs += float64(c) * float64(c-1)
	}
	if len(counts) == 1 {
		return loadgen.Keys{Pick: loadgen.PickOne, N: 1}
	}
	same := pairs / (n * (n - 1))
	number := func(skew func(n int) float64) int {
		enough := func(more int) bool {
			seen := 0.0
			for _, p := range zipf(len(counts)+more, skew(len(counts)+more)) {
				seen += 1 - math.Pow(1-p, n)
			}
			return seen >= float64(len(counts))-0.5
		}
		return min(len(counts)+sort.Search(20*len(counts), enough), loadgen.MaxKeys)
	}
	even := number(func(int) float64 { return 0 })
	if chance := math.Sqrt(2/float64(even)) / n; same-1/float64(even) < 3*chance {
		return loadgen.Keys{Pick: loadgen.PickUniform, N: even}
	}
	skewOf := func(n int) float64 {
		return float64(sort.Search(1000, func(i int) bool {
			squares := 0.0
			for _, p := range zipf(n, float64(i)/100) {
				squares += p * p
			}
			return squares >= same
		})) / 100
	}
	skewed := number(skewOf)
	return loadgen.Keys{Pick: loadgen.PickZipf, N: skewed, Skew: max(skewOf(skewed), 0.01)}
}

// zipf returns the shares of n keys, the largest first.
func zipf(n int, skew float64) []float64 {
	shares, total := make([]float64, n), 0.0
	for i := range shares {
		shares[i] = math.Pow(float64(i+1), -skew)
		total += shares[i]
	}
	for i := range shares {
		shares[i] /= total
	}
	return shares
}
