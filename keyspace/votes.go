package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// elect joins the locks of the servers of a Redlock: of each key one lock, with
// a vote of each server. It is held by whom a majority votes for; where nobody
// has one, by all who have a vote, and its state is Partial. What is less sure
// than atLeast, even so, is left out.
func elect(parts []part, atLeast Confidence) []Lock {
	ballots := make(map[ID]*ballot)
	var order []ID
	for i, p := range parts {
		for _, l := range p.Locks {
			id := ID{DB: l.DB, Key: l.Key}
			b := ballots[id]
			if b == nil {
				b = &ballot{at: make([]*Lock, len(parts))}
				ballots[id] = b
				order = append(order, id)
			}
			b.at[i] = &l
		}
	}
	locks := make([]Lock, 0, len(order))
	for _, id := range order {
		if l := ballots[id].count(parts); l.Confidence >= atLeast {
			locks = append(locks, l)
		}
	}
	return locks
}

// ballot is what the servers have under one key, in their order; nil = nothing.
type ballot struct{ at []*Lock }

// count makes one lock of what they have.
func (b *ballot) count(parts []part) Lock {
	l := b.typical()
	l.Kind, l.Node = Redlock, strings.Join(addresses(parts), ",")
	l.Votes = make([]Vote, len(parts))
	for i, p := range parts {
		l.Votes[i] = b.vote(i, p)
	}
	l.Holders = nil
	claims := b.claims()
	if len(claims) > 0 && l.Confidence == Possible && len(claims[0]) > 1 && len(claims[0][0].ID) >= tokenLeast {
		why := fmt.Sprintf("%d of %d servers have the same value", len(claims[0]), len(parts))
		l = raised(found{lock: l}, why).lock
	}
	for _, c := range claims {
		if len(l.Holders) > 0 && l.elected() {
			break // what else there is, is left over, or comes too late
		}
		l.Holders = append(l.Holders, c.holder(quorum(len(parts))))
	}
	if len(l.Holders) > 0 {
		l.Expires = l.Holders[0].Expires
	}
	return l
}

// elected reports whether a majority of the servers of a Redlock has the token
// of its first holder.
func (l Lock) elected() bool {
	votes := 0
	for _, v := range l.Votes {
		if v.Token == l.Holders[0].ID {
			votes++
		}
	}
	return votes >= quorum(len(l.Votes))
}

// quorum is how many of so many servers are a majority.
func quorum(servers int) int { return servers/2 + 1 }

func addresses(parts []part) []string {
	all := make([]string, len(parts))
	for i, p := range parts {
		all[i] = p.addr
	}
	return all
}

// typical returns the lock as the server has it that is surest of what it is.
func (b *ballot) typical() Lock {
	var best *Lock
	for _, l := range b.at {
		if l != nil && (best == nil || l.Confidence > best.Confidence) {
			best = l
		}
	}
	return *best
}

// vote is what one server has. One that does not answer, or has not been looked
// through, may have anything.
func (b *ballot) vote(i int, p part) Vote {
	v := Vote{Node: p.addr}
	l := b.at[i]
	switch {
	case l == nil:
		v.Silent = p.err != nil || !p.Complete
	case len(l.Holders) > 0:
		v.Token, v.Expires = l.Holders[0].ID, l.Holders[0].Expires
	}
	return v
}

// claim is the holds of one token, on several servers.
type claim []Holder

// claims lists the tokens that have votes, those with most first.
func (b *ballot) claims() []claim {
	of := make(map[string]claim)
	for _, l := range b.at {
		if l != nil && len(l.Holders) > 0 {
			h := l.Holders[0]
			of[h.ID] = append(of[h.ID], h)
		}
	}
	all := make([]claim, 0, len(of))
	for _, c := range of {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b claim) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a[0].ID, b[0].ID))
	})
	return all
}

// holder is one holder for all of a token's holds. With a majority, it holds
// since there was one, and until there is none; else since its last vote, and
// until the last is gone.
func (c claim) holder(quorum int) Holder {
	h := c[0]
	begins, ends := make([]time.Time, len(c)), make([]time.Time, len(c))
	for i, one := range c {
		begins[i], ends[i] = one.Since, one.Expires
		h.Count = max(h.Count, one.Count)
	}
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, func(a, b time.Time) int { return -sooner(a, b) })
	h.Left = time.Time{} // one server alone cannot tell
	h.Since, h.Expires = begins[min(quorum, len(c))-1], ends[0]
	if len(c) >= quorum {
		h.Expires = ends[quorum-1]
	}
	return h
}

// sooner compares deadlines. Zero, which is never, comes last.
func sooner(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	default:
		return a.Compare(b)
	}
}
