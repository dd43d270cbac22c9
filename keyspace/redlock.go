package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mergeRedlock merges the locks of the servers of a Redlock: one lock for each key,
// with a vote of each server. Its holder is the token with a majority. Without a
// majority all tokens are holders and the state is Partial. Locks below atLeast are
// left out.
func mergeRedlock(parts []Part, atLeast Confidence) []Lock {
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

// copies are the locks of all servers under one key, in the order of the servers; nil
// = no lock.
type copies struct{ byServer []*Lock }

// merge makes one lock of the copies.
func (c *copies) merge(parts []Part) Lock {
	l := c.mostCertain()
	l.Kind, l.Node = Redlock, strings.Join(addrsOf(parts), ",")
	l.Votes = make([]Vote, len(parts))
	for i, p := range parts {
		l.Votes[i] = c.vote(i, p)
	}
	l.Holders = nil
	claims := c.holdsByToken()
	if len(claims) > 0 && l.Confidence == Possible && len(claims[0]) > 1 && len(claims[0][0].ID) >= MinTokenLen {
		l = l.WithEvidence(fmt.Sprintf("%d of %d servers have the same value", len(claims[0]), len(parts)))
	}
	for _, holds := range claims {
		if len(l.Holders) > 0 && l.hasQuorum() {
			break // other tokens are leftovers or too late
		}
		l.Holders = append(l.Holders, holds.holder(quorum(len(parts))))
	}
	if len(l.Holders) > 0 {
		l.Expires = l.Holders[0].Expires
	}
	return l
}

// hasQuorum reports whether a majority of the servers of a Redlock has the token of the
// first holder.
func (l Lock) hasQuorum() bool {
	votes := 0
	for _, v := range l.Votes {
		if v.Token == l.Holders[0].ID {
			votes++
		}
	}
	return votes >= quorum(len(l.Votes))
}

// quorum returns the majority of a number of servers.
func quorum(servers int) int { return servers/2 + 1 }

func addrsOf(parts []Part) []string {
	all := make([]string, len(parts))
	for i, p := range parts {
		all[i] = p.Addr
	}
	return all
}

// mostCertain returns the copy with the highest confidence.
func (c *copies) mostCertain() Lock {
	var best *Lock
	for _, l := range c.byServer {
		if l != nil && (best == nil || l.Confidence > best.Confidence) {
			best = l
		}
	}
	return *best
}

// vote returns the vote of one server. A server that does not answer, or is not fully
// scanned, is silent.
func (c *copies) vote(i int, p Part) Vote {
	v := Vote{Node: p.Addr}
	l := c.byServer[i]
	switch {
	case l == nil:
		v.Silent = p.Err != nil || !p.Complete
	case len(l.Holders) > 0:
		v.Token, v.Expires = l.Holders[0].ID, l.Holders[0].Expires
	}
	return v
}

// tokenHolds are the holds of one token on several servers.
type tokenHolds []Holder

// holdsByToken lists the holds of each token, those on most servers first.
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

// holder makes one holder of all holds of a token. With a majority, the hold lasts from
// the moment when the majority began until it ends. Without one, it lasts from the last
// vote until all votes have expired.
func (c tokenHolds) holder(quorum int) Holder {
	h := c[0]
	begins, ends := make([]time.Time, len(c)), make([]time.Time, len(c))
	for i, one := range c {
		begins[i], ends[i] = one.Since, one.Expires
		h.Count = max(h.Count, one.Count)
	}
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, func(a, b time.Time) int { return -compareDeadlines(a, b) })
	h.Left = time.Time{} // unknown, because it takes more than one server
	h.Since, h.Expires = begins[min(quorum, len(c))-1], ends[0]
	if len(c) >= quorum {
		h.Expires = ends[quorum-1]
	}
	return h
}

// compareDeadlines compares deadlines. Zero, which means never, comes last.
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
