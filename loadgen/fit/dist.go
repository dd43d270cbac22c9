package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"locktop/loadgen"
)

// sample is an observed duration in seconds. It is censored if the true one is longer.
type sample struct {
	at       float64
	censored bool
}

// step is a step of a distribution function, from below to below + share.
type step struct {
	at, share, below float64
	longer           bool // only that these durations are longer than at is known
}

// kaplanMeier returns the distribution of durations by the product-limit estimator for
// censored samples (Kaplan and Meier, 1958). What remains after the longest sample counts
// as that (Efron, 1967). It sorts the samples.
func kaplanMeier(samples []sample) []step {
	slices.SortFunc(samples, func(a, b sample) int {
		if a.at == b.at && a.censored != b.censored {
			return map[bool]int{true: 1, false: -1}[a.censored]
		}
		return cmp.Compare(a.at, b.at)
	})
	var steps []step
	left := 1.0
	for i, s := range samples {
		share := left / float64(len(samples)-i)
		if last := i == len(samples)-1; !s.censored || last {
			steps = append(steps, step{s.at, share, 1 - left, s.censored})
			left -= share
		}
	}
	return steps
}

// moments returns the share of the steps, and the mean and the variance of f over them.
func moments(steps []step, f func(float64) float64) (total, mean, variance float64) {
	for _, s := range steps {
		total, mean, variance = total+s.share, mean+s.share*f(s.at), variance+s.share*f(s.at)*f(s.at)
	}
	mean /= total
	return total, mean, max(variance/total-mean*mean, 0)
}

func meanOf(steps []step) time.Duration {
	_, mean, _ := moments(steps, func(v float64) float64 { return v })
	return seconds(mean)
}

// logNormal returns the log-normal distribution with the greatest likelihood, to which a
// censored sample contributes the probability of a longer duration (Klein and
// Moeschberger, Survival Analysis, 3.5).
func logNormal(samples []sample, steps []step) loadgen.Dist {
	logs := make([]float64, len(samples))
	for i, s := range samples {
		logs[i] = math.Log(s.at)
	}
	likelihood := func(mu, sigma float64) (l float64) {
		for i, s := range samples {
			if z := (logs[i] - mu) / sigma; s.censored {
				l += math.Log(math.Erfc(min(z, 30)/math.Sqrt2) / 2)
			} else {
				l -= z*z/2 + math.Log(sigma)
			}
		}
		return l
	}
	_, mu, variance := moments(steps, math.Log)
	sigma := max(math.Sqrt(variance), 1e-3)
	best := likelihood(mu, sigma)
	for by := sigma / 2; by > 1e-3*sigma; { // a pattern search: it halves its step where no neighbour is better
		before := best
		for _, to := range [][2]float64{{mu + by, sigma}, {mu - by, sigma}, {mu, sigma + by}, {mu, max(sigma-by, sigma/2, 1e-3)}} {
			if l := likelihood(to[0], to[1]); l > best {
				best, mu, sigma = l, to[0], to[1]
			}
		}
		if best == before {
			by /= 2
		}
	}
	return loadgen.LogNormal(seconds(math.Exp(mu)), seconds(math.Exp(mu+loadgen.SigmasOfP99*sigma)))
}

// bimodal returns the distribution with the means of the two parts whose logarithms vary
// least.
func bimodal(steps []step) (d loadgen.Dist) {
	all, mean, _ := moments(steps, math.Log)
	n, sum, most := 0.0, 0.0, 0.0
	for i := range len(steps) - 1 {
		n, sum = n+steps[i].share, sum+steps[i].share*math.Log(steps[i].at)
		if between := sum*sum/n + math.Pow(all*mean-sum, 2)/(all-n) - all*mean*mean; between > most {
			most, d = between, loadgen.Bimodal(meanOf(steps[:i+1]), meanOf(steps[i+1:]), tidy(1-n, 0.005))
		}
	}
	return d
}

// distribution returns the distribution that fits best, and a sentence about its distance.
func distribution(samples []sample) (best loadgen.Dist, note string) {
	steps := kaplanMeier(samples)
	sum, censored := 0.0, 0
	for _, s := range samples {
		sum += s.at
		if s.censored {
			censored++
		}
	}
	all := []loadgen.Dist{loadgen.Const(meanOf(steps))}
	if ended := len(samples) - censored; ended > 1 {
		all = append(all, loadgen.Exp(seconds(sum/float64(ended))), logNormal(samples, steps), bimodal(steps))
	}
	distance, chance := math.Inf(1), 1/math.Sqrt(float64(len(samples)))
	for _, d := range all {
		if k := ks(steps, d); k < distance-chance/2 { // the later ones have more parameters
			best, distance = d, k
		}
	}
	note = fmt.Sprintf("From %d, of which %d are censored: they lasted at least so long. KS distance %.3f", len(samples), censored, distance)
	if distance > 0.08+1.36*chance { // chance alone exceeds 1.36/√n in 5 %
		note += ", a bad fit: the true distribution has another shape"
	}
	return best, note + "."
}

// ks returns the Kolmogorov-Smirnov distance of the steps and a distribution: the greatest
// difference of their distribution functions. Durations that differ by less than 2 ms + 5 %
// count as equal, because a recording sees both ends of a hold a little late.
func ks(steps []step, d loadgen.Dist) (worst float64) {
	for _, s := range steps {
		slack := 0.002 + 0.05*s.at
		worst = max(worst, below(d, s.at-slack)-s.below)
		if !s.longer {
			worst = max(worst, s.below+s.share-below(d, s.at+slack))
		}
	}
	return worst
}

// below returns the share of a distribution that is at most v seconds.
func below(d loadgen.Dist, v float64) float64 {
	low, high := d.Low.Seconds(), d.High.Seconds()
	switch {
	case v <= 0:
		return 0
	case d.Shape == loadgen.ShapeExp:
		return 1 - math.Exp(-v/d.Mean.Seconds())
	case d.Shape == loadgen.ShapeLogNormal:
		return math.Erfc(-math.Log(v/low)/math.Log(high/low)*loadgen.SigmasOfP99/math.Sqrt2) / 2
	case d.Shape == loadgen.ShapeBimodal && v >= low && v < high:
		return 1 - d.Share
	case v >= high && v >= d.Mean.Seconds():
		return 1
	}
	return 0
}

// tidy returns v with the fewest significant digits that change it by at most a share.
func tidy(v, share float64) float64 {
	for digits := 1; ; digits++ {
		if n, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64); math.Abs(n-v) <= share*math.Abs(v) {
			return n
		}
	}
}

func seconds(v float64) time.Duration { return time.Duration(tidy(v*1e9, 0.005)) }

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
