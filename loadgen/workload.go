package loadgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// planner makes the random choices of one client. They depend only on the scenario and
// the client number, never on the course of the run, so that a run can be repeated.
type planner struct {
	random *rand.Rand
}

// iteration is the set of choices for one round of a client.
type iteration struct {
	key         int
	shared      bool // for reading
	hold, think time.Duration
}

func newPlanner(seed uint64, client int) planner {
	return planner{rand.New(rand.NewPCG(seed, uint64(client)))}
}

// next makes the choices for a round of s.
func (c planner) next(s *Scenario, keys *picker) iteration {
	return iteration{
		key:    keys.pick(c.random),
		hold:   s.Hold.draw(c.random),
		think:  s.Think.draw(c.random),
		shared: s.Reads > 0 && c.random.Float64() < s.Reads,
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
