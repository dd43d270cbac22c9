package loadgen

import (
	"math/rand/v2"
	"time"
)

// Dist is a distribution of durations: exponential around Mean, or constant.
// The zero Dist stands for a default; no time at all is Dist{Const: true}.
type Dist struct {
	Mean  time.Duration
	Const bool
}

func (d Dist) draw(r *rand.Rand) time.Duration {
	if d.Const {
		return d.Mean
	}
	return time.Duration(r.ExpFloat64() * float64(d.Mean))
}

// choices are the decisions of one simulated client. They depend on the
// scenario and the client's number alone, never on what happens to it, so that
// a run can be repeated.
type choices struct {
	random      *rand.Rand
	keys        int
	hold, think Dist
}

// choice is what a client decides when it arrives: all of its next round.
type choice struct {
	key         int
	hold, think time.Duration
}

func newChoices(s Scenario, client int) choices {
	return choices{
		random: rand.New(rand.NewPCG(s.Seed, uint64(client))),
		keys:   s.Keys,
		hold:   s.Hold,
		think:  s.Think,
	}
}

func (c choices) next() choice {
	return choice{
		key:   c.random.IntN(c.keys),
		hold:  c.hold.draw(c.random),
		think: c.think.draw(c.random),
	}
}
