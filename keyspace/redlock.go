package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mergeRedlock joins the locks of the servers of a Redlock: of each key one lock, with
// a vote of each server. It is held by whom a majority votes for; where nobody
// has one, by all who have a vote, and its state is Partial. What is less sure
// than possibleFormats, even so, is left out.
func mergeRedlock(parts []memberSnapshot, atLeast Confidence) []Lock {
	byID := make(map[ID]*copies)
	var order []ID
	for i, p := range parts {
		for _, l := range p.Locks {
			id := ID{DB: l.DB, Key: l.Key}
			b := byID[id]
			if b == nil {
				b = &copies{byServer: make([]*Lock, len(parts))}
				byID[id] = b
				order = append(order, id)
			}
			b.byServer[i] = &l
		}
	}
	locks := make([]Lock, 0, len(order))
	for _, id := range order {
		if l := byID[id].merge(parts); l.Confidence >= atLeast {
			locks = append(locks, l)
		}
	}
	return locks
}

// copies is what the servers have under one key, in their order; nil = nothing.
type copies struct{ byServer []*Lock }

// merge makes one lock of what they have.
func (c *copies) merge(parts []memberSnapshot) Lock {
	l := c.mostCertain()
	l.Kind, l.Node = Redlock, strings.Join(addrsOf(parts), ",")
	l.Votes = make([]Vote, len(parts))
	for i, p := range parts {
		l.Votes[i] = c.vote(i, p)
	}
	l.Holders = nil
	claims := c.holdsByToken()
	if len(claims) > 0 && l.Confidence == Possible && len(claims[0]) > 1 && len(claims[0][0].ID) >= minTokenLen {
		why := fmt.Sprintf("%d of %d servers have the same value", len(claims[0]), len(parts))
		l = promote(detection{lock: l}, why).lock
	}
	for _, holds := range claims {
		if len(l.Holders) > 0 && l.hasQuorum() {
			break // what else there is, is left over, or comes too late
		}
		l.Holders = append(l.Holders, holds.holder(quorum(len(parts))))
	}
	if len(l.Holders) > 0 {
		l.Expires = l.Holders[0].Expires
	}
	return l
}

// hasQuorum reports whether a majority of the servers of a Redlock has the token
// of its first holder.
func (l Lock) hasQuorum() bool {
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

func addrsOf(parts []memberSnapshot) []string {
	all := make([]string, len(parts))
	for i, p := range parts {
		all[i] = p.addr
	}
	return all
}

// mostCertain returns the lock as the server has it that is surest of what it is.
func (c *copies) mostCertain() Lock {
	var best *Lock
	for _, l := range c.byServer {
		if l != nil && (best == nil || l.Confidence > best.Confidence) {
			best = l
		}
	}
	return *best
}

// vote is what one server has. One that does not answer, or has not been looked
// through, may have anything.
func (c *copies) vote(i int, p memberSnapshot) Vote {
	v := Vote{Node: p.addr}
	l := c.byServer[i]
	switch {
	case l == nil:
		v.Silent = p.err != nil || !p.Complete
	case len(l.Holders) > 0:
		v.Token, v.Expires = l.Holders[0].ID, l.Holders[0].Expires
	}
	return v
}

// tokenHolds is the holds of one token, on several servers.
type tokenHolds []Holder

// holdsByToken lists the tokens that have votes, those with most first.
func (c *copies) holdsByToken() []tokenHolds {
	of := make(map[string]tokenHolds)
	for _, l := range c.byServer {
		if l != nil && len(l.Holders) > 0 {
			h := l.Holders[0]
			of[h.ID] = append(of[h.ID], h)
		}
	}
	all := make([]tokenHolds, 0, len(of))
	for _, holds := range of {
		all = append(all, holds)
	}
	slices.SortFunc(all, func(a, b tokenHolds) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a[0].ID, b[0].ID))
	})
	return all
}

// holder is one holder for all of a token's holds. With a majority, it holds
// since there was one, and until there is none; else since its last vote, and
// until the last is gone.
func (c tokenHolds) holder(quorum int) Holder {
	h := c[0]
	begins, ends := make([]time.Time, len(c)), make([]time.Time, len(c))
	for i, one := range c {
		begins[i], ends[i] = one.Since, one.Expires
		h.Count = max(h.Count, one.Count)
	}
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, func(a, b time.Time) int { return -compareDeadlines(a, b) })
	h.Left = time.Time{} // one server alone cannot tell
	h.Since, h.Expires = begins[min(quorum, len(c))-1], ends[0]
	if len(c) >= quorum {
		h.Expires = ends[quorum-1]
	}
	return h
}

// compareDeadlines compares deadlines. Zero, which is never, comes last.
func compareDeadlines(a, b time.Time) int {
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
