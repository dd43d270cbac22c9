package lock

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"
)

// ballot is what one node makes of it.
type ballot struct {
	state  ballotState
	holder *HeldError // who has the lock there, if it was taken
	fence  int64
}

// ballots are those of all nodes.
type ballots []ballot

type ballotState uint8

const (
	unasked ballotState = iota
	asked               // no answer yet
	granted
	taken  // somebody else has the lock there
	failed // did not answer, or has no vote
	free   // has not been asked for the lock, but nobody has it there
)

// newBallot reads an answer: to a take it is an integer, the fencing token.
func newBallot(a answer) ballot {
	fence, grant := a.reply.(int64)
	switch {
	case a.err != nil:
		return refusal(a.err)
	case grant:
		return ballot{state: granted, fence: fence}
	}
	return ballot{state: free}
}

// refusal reads why a node does not agree.
func refusal(err error) ballot {
	var held *HeldError
	if errors.As(err, &held) {
		return ballot{state: taken, holder: held}
	}
	return ballot{state: failed}
}

// count returns how many nodes are in one of these states.
func (all ballots) count(states ...ballotState) int {
	n := 0
	for _, b := range all {
		if slices.Contains(states, b.state) {
			n++
		}
	}
	return n
}

// holder returns who has the most nodes, and for how long it may rely on having
// a quorum of them.
func (all ballots) holder(majority int) (token string, ttl time.Duration) {
	copies := make(map[string][]time.Duration)
	for _, b := range all {
		if b.holder != nil {
			copies[b.holder.Token] = append(copies[b.holder.Token], b.holder.TTL)
		}
	}
	for candidate, ttls := range copies {
		if len(ttls) > len(copies[token]) {
			token = candidate
		}
	}
	return token, quorumTTL(copies[token], majority)
}

// quorumTTL returns how long the longest-lived copies that make a quorum will
// all be there, less the allowance for drift: what their holder may rely on.
// Negative = for ever.
func quorumTTL(ttls []time.Duration, majority int) time.Duration {
	lasting := func(ttl time.Duration) time.Duration {
		if ttl < 0 {
			return math.MaxInt64
		}
		return ttl
	}
	slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(lasting(b), lasting(a)) })
	ttl := ttls[min(majority, len(ttls))-1]
	if ttl < 0 {
		return ttl
	}
	return max(usable(ttl), 0)
}

// topFence returns the largest fencing token that was granted.
func (all ballots) topFence() int64 {
	var top int64
	for _, b := range all {
		top = max(top, b.fence)
	}
	return top
}
