package loadgen

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Shape is the shape of a distribution.
type Shape string

// Shapes of distributions.
const (
	ShapeConst     Shape = "const"     // always Mean
	ShapeExp       Shape = "exp"       // exponential around Mean
	ShapeUniform   Shape = "uniform"   // any time from Low to High
	ShapeLogNormal Shape = "lognormal" // 50% below Low, 99% below High
	ShapeBimodal   Shape = "bimodal"   // High with probability Share, else Low
)

// Shapes returns all shapes.
func Shapes() []Shape {
	return []Shape{ShapeConst, ShapeExp, ShapeUniform, ShapeLogNormal, ShapeBimodal}
}

// Dist is a distribution of durations. The zero Dist stands for a default; for a
// duration of 0 use Const(0).
type Dist struct {
	Shape Shape         `yaml:"dist"`
	Mean  time.Duration `yaml:"mean"`         // const, exp
	Low   time.Duration `yaml:"min p50 fast"` // uniform: lower bound; lognormal: p50; bimodal: the usual time
	High  time.Duration `yaml:"max p99 slow"` // uniform: upper bound; lognormal: p99; bimodal: the other time
	Share float64       `yaml:"share,share"`  // bimodal: probability of High, 0 to 1
}

// Const returns the distribution that is always d.
func Const(d time.Duration) Dist { return Dist{Shape: ShapeConst, Mean: d} }

// Exp returns the exponential distribution with this mean.
func Exp(mean time.Duration) Dist { return Dist{Shape: ShapeExp, Mean: mean} }

// LogNormal returns the log-normal distribution with these percentiles.
func LogNormal(p50, p99 time.Duration) Dist {
	return Dist{Shape: ShapeLogNormal, Low: p50, High: p99}
}

// Bimodal returns the distribution that is slow with probability share, else fast.
func Bimodal(fast, slow time.Duration, share float64) Dist {
	return Dist{Shape: ShapeBimodal, Low: fast, High: slow, Share: share}
}

// keys returns the keys of the numbers of the shape.
func (s Shape) keys() []string {
	switch s {
	case ShapeConst, ShapeExp:
		return []string{"mean"}
	case ShapeUniform:
		return []string{"min", "max"}
	case ShapeLogNormal:
		return []string{"p50", "p99"}
	case ShapeBimodal:
		return []string{"fast", "slow", "share"}
	}
	return nil
}

// String returns the form that [ParseDist] reads.
func (d Dist) String() string {
	var numbers []string
	for _, key := range d.Shape.keys() {
		numbers = append(numbers, named(key, fieldsOf(reflect.ValueOf(d)))[0].text())
	}
	text := strings.Join(numbers, ",")
	if text == "" || d.Shape == ShapeConst {
		return text
	}
	return string(d.Shape) + ":" + text
}

// Typical returns a typical duration: the mean or, for lognormal and bimodal, Low.
func (d Dist) Typical() time.Duration {
	switch d.Shape {
	case ShapeUniform:
		return d.Low + (d.High-d.Low)/2
	case ShapeLogNormal, ShapeBimodal:
		return d.Low
	}
	return d.Mean
}

// Scaled returns the distribution with all durations multiplied by by, at most 24 h.
func (d Dist) Scaled(by float64) Dist {
	for _, t := range []*time.Duration{&d.Mean, &d.Low, &d.High} {
		*t = min(time.Duration(float64(*t)*by), maxTime)
	}
	return d
}

const distForms = "20ms, exp:20ms, uniform:10ms,50ms, lognormal:20ms,400ms or bimodal:5ms,500ms,5%"

// ParseDist parses a distribution: 20ms, exp:20ms, uniform:10ms,50ms,
// lognormal:20ms,400ms (p50 and p99) or bimodal:5ms,500ms,5%.
func ParseDist(text string) (Dist, error) {
	shape, rest, shaped := strings.Cut(text, ":")
	if !shaped {
		shape, rest = string(ShapeConst), text
	}
	d := Dist{Shape: Shape(shape)}
	keys, numbers := d.Shape.keys(), strings.Split(rest, ",")
	if len(keys) == 0 || len(keys) != len(numbers) {
		return Dist{}, fmt.Errorf("%q is no distribution; write %s", text, distForms)
	}
	for i, key := range keys {
		number := &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(numbers[i])}
		if err := readKey(number, named(key, fieldsOf(reflect.ValueOf(&d).Elem()))); err != nil {
			if shaped {
				return Dist{}, errors.New(err.what)
			}
			return Dist{}, fmt.Errorf("%q is no distribution; write %s", text, distForms)
		}
	}
	return d, d.validate()
}

// parseShare parses 5% or 0.05.
func parseShare(text string) (float64, error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	share, err := strconv.ParseFloat(number, 64)
	if isPercent {
		share /= 100
	}
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, fmt.Errorf("%q is no share; write one like 5%% or 0.05", text)
	}
	return share, nil
}

// FormatShare formats a share of 0 to 1, like 5%, so that parseShare returns the same number.
func FormatShare(share float64) string {
	text := strconv.FormatFloat(share*100, 'g', 12, 64) + "%"
	if back, err := parseShare(text); err != nil || back != share {
		return strconv.FormatFloat(share, 'g', -1, 64)
	}
	return text
}

// ParseRate parses 500, 500/s or 30/m, and returns arrivals per second.
func ParseRate(text string) (float64, error) {
	number, per := text, 1.0
	for suffix, seconds := range map[string]float64{"/s": 1, "/m": 60, "/min": 60, "/h": 3600} {
		if n, found := strings.CutSuffix(text, suffix); found {
			number, per = n, seconds
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) {
		return 0, fmt.Errorf("%q is no rate; write one like 500/s or 30/m", text)
	}
	return v / per, nil
}

// FormatRate formats arrivals per second so that [ParseRate] returns the same number.
func FormatRate(rate float64) string { return formatFloat(rate) + "/s" }

// short formats a duration without trailing zeros: 2m, not 2m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// parseShort reads the form of [ParseDist].
func (d *Dist) parseShort(text string) error {
	parsed, err := ParseDist(text)
	if err == nil {
		*d = parsed
	}
	return err
}

func (d *Dist) shortText() string { return d.String() }

// checkMapping returns an error unless the mapping has exactly the keys of its shape.
func (d *Dist) checkMapping(n *yaml.Node) *fileError {
	if keys := d.Shape.keys(); keys != nil {
		for i := 0; i < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Value != "dist" && !slices.Contains(keys, key.Value) {
				return wrong(key, "%s has no %s; it has %s", d.Shape, key.Value, strings.Join(keys, " "))
			}
		}
		if len(n.Content) < 2+2*len(keys) {
			return wrong(n, "%s needs %s", d.Shape, strings.Join(keys, " "))
		}
	}
	if err := d.validate(); err != nil {
		return wrong(n, "%v", err)
	}
	return nil
}

func (d Dist) validate() error {
	if !slices.Contains(Shapes(), d.Shape) {
		return fmt.Errorf("dist must be one of %s, not %q", list(Shapes()), d.Shape)
	}
	for _, t := range []time.Duration{d.Mean, d.Low, d.High} {
		if t < 0 || t > maxTime {
			return fmt.Errorf("times must be 0 to %s, not %s", maxTime, t)
		}
	}
	switch {
	case d.High < d.Low:
		return fmt.Errorf("%s: the second time must not be below the first: %s, %s", d.Shape, d.Low, d.High)
	case d.Shape == ShapeLogNormal && d.Low == 0:
		return fmt.Errorf("lognormal: its p50 must be above 0")
	case !(d.Share >= 0 && d.Share <= 1):
		return fmt.Errorf("the share must be 0%% to 100%%, not %g%%", 100*d.Share)
	}
	return nil
}

// SigmasOfP99 is how many standard deviations the p99 of a normal distribution is above
// its mean.
const SigmasOfP99 = 2.3263478740408408

func (d Dist) draw(r *rand.Rand) time.Duration {
	switch d.Shape {
	case ShapeExp:
		return time.Duration(r.ExpFloat64() * float64(d.Mean))
	case ShapeUniform:
		return d.Low + time.Duration(r.Float64()*float64(d.High-d.Low))
	case ShapeLogNormal:
		sigma := math.Log(float64(d.High)/float64(d.Low)) / SigmasOfP99
		return time.Duration(min(float64(d.Low)*math.Exp(sigma*r.NormFloat64()), float64(maxTime)))
	case ShapeBimodal:
		if r.Float64() < d.Share {
			return d.High
		}
		return d.Low
	}
	return d.Mean
}

// iteration is the set of choices for one round of a client.
type iteration struct {
	key         int
	shared      bool // for reading
	work, think time.Duration
	drawn       Dist // what work was drawn from
}

// choose makes the random choices of a client for a round of s. They depend only on the
// scenario and the client number, never on the course of the run, so that a run can be repeated.
func choose(random *rand.Rand, s *Scenario, keys *picker) iteration {
	return iteration{
		key:    keys.pick(random),
		work:   s.Hold.draw(random),
		drawn:  s.Hold,
		think:  s.Think.draw(random),
		shared: s.Reads > 0 && random.Float64() < s.Reads,
	}
}

// picker picks key numbers, from 0. Safe for concurrent use.
type picker struct {
	keys       Keys
	cumulative []float64 // zipf: sum of the weights up to each key
}

func newPicker(k Keys) *picker {
	p := &picker{keys: k}
	if k.Pick != PickZipf {
		return p
	}
	sum := 0.0
	p.cumulative = make([]float64, k.N)
	for i := range p.cumulative {
		sum += math.Pow(float64(i+1), -k.Skew)
		p.cumulative[i] = sum
	}
	return p
}

func (p *picker) pick(r *rand.Rand) int {
	switch p.keys.Pick {
	case PickOne:
		return 0
	case PickHotspot:
		if p.keys.N == 1 || r.Float64() < p.keys.Skew {
			return 0
		}
		return 1 + r.IntN(p.keys.N-1)
	case PickZipf:
		key, _ := slices.BinarySearch(p.cumulative, r.Float64()*p.cumulative[p.keys.N-1])
		return key
	}
	return r.IntN(p.keys.N)
}
