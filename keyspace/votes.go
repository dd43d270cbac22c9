package keyspace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Vote is what one server of a Redlock has under the key.
type Vote struct {
	Node        string    `json:"node,omitzero"`        // host:port
	Token       string    `json:"token,omitzero"`       // empty = no holder on this server, or unknown
	Expires     time.Time `json:"expires,omitzero"`     // zero = never
	Unreachable bool      `json:"unreachable,omitzero"` // the server did not answer

	Was string    `json:"was,omitzero"` // the token that it had last, if it does not answer, or has lost it; Expires is then that of Was
	Why EventKind `json:"why,omitzero"` // how the server lost Was: Lost, Evicted or Flushed, and Replaced once another token has a majority; "" = it did not
}

// lostVotes says how servers of a Redlock have lost tokens.
type lostVotes map[voteID]EventKind

// voteID is a token under the key of a lock, on one server.
type voteID struct {
	lock  ID
	token string
}

// lostBy returns the votes that the events of the servers report as lost.
func lostBy(parts []Part) lostVotes {
	lost := make(lostVotes)
	for _, p := range parts {
		for i := range p.Events {
			switch e := &p.Events[i]; e.Kind {
			case Lost, Evicted, Flushed:
				lost[voteID{ID{p.Addr, e.Lock.DB, e.Lock.Key}, e.Holder.ID}] = e.Kind
			}
		}
	}
	return lost
}

// last returns the token that the server has, or may have because it is silent.
func (v Vote) last() string {
	if v.Token != "" || v.Why != "" {
		return v.Token
	}
	return v.Was
}

// vote returns the vote of a server.
func (l *Lock) vote(addr string) Vote {
	for _, v := range l.Votes {
		if v.Node == addr {
			return v
		}
	}
	return Vote{}
}

// Copies returns the servers of a Redlock that have the token of a holder, and those that did
// not answer.
func (l *Lock) Copies() (on, silent []string) {
	for _, v := range l.Votes {
		if _, held := l.Holder(v.Token); held {
			on = append(on, v.Node)
		} else if v.Unreachable {
			silent = append(silent, v.Node)
		}
	}
	return on, silent
}

// VotesText says on how many of its servers a Redlock was seen, and names those that did not
// answer; "" for other kinds.
func (l *Lock) VotesText() string {
	on, silent := l.Copies()
	switch n := len(l.Votes); {
	case n == 0:
		return ""
	case len(silent) == 0:
		return fmt.Sprintf("it is on %d of %d servers", len(on), n)
	default:
		return fmt.Sprintf("it is on %d of %d servers; %d did not answer and may have it, too: %s", len(on), n, len(silent), strings.Join(silent, ", "))
	}
}

// copyOf returns the lock as one server had it. Unlike a lock of the server, it has votes.
func (l *Lock) copyOf(v Vote) *Lock {
	one := *l
	h, _ := l.Holder(v.last())
	h.ID, h.Expires, h.Depth = v.last(), v.Expires, max(1, h.Depth)
	one.Holders = []Holder{h}
	return &one
}

// mayKeep reports whether a token may still have a majority, from what the lock was before and what servers have now.
func (l *Lock) mayKeep(token string, now copies, parts []Part) bool {
	n := 0
	for i, p := range parts {
		v := l.vote(p.Addr)
		has := now != nil && now[i] != nil && len(now[i].Holders) > 0 && now[i].Holders[0].ID == token
		if has || v.Why != "" && v.Was == token || p.Err != nil && v.last() == token {
			n++
		}
	}
	return n >= Quorum(len(parts))
}

// noteLost notes the votes that servers have lost since the read before, and earlier, as long as
// their token may have its majority without the loss.
func (l *Lock) noteLost(was *Lock, lost lostVotes) {
	for i := range l.Votes {
		v := &l.Votes[i]
		before := was.vote(v.Node)
		token, why := before.last(), lost[voteID{ID{v.Node, l.DB, l.Key}, before.last()}]
		if why == "" {
			token, why = before.Was, before.Why
		}
		if why != "" && v.Was == "" && v.Token != token {
			v.Was, v.Why = token, why
			if v.Token == "" {
				v.Expires = before.Expires
			}
		}
	}
	for i := range l.Holders { // its deadline has not moved because a server has lost it
		h := &l.Holders[i]
		before, held := was.Holder(h.ID)
		on, silent, _ := l.count(h.ID)
		if held && on+silent < Quorum(len(l.Votes)) && l.believes(h.ID) && compareDeadlines(before.Expires, h.Expires) < 0 {
			h.Expires = before.Expires
		}
		l.Expires = l.Holders[0].Expires
	}
	for i, v := range l.Votes {
		switch {
		case v.Why == "":
		case !l.believes(v.Was):
			l.Votes[i] = Vote{Node: v.Node, Token: v.Token, Unreachable: v.Unreachable}
			if v.Token != "" {
				l.Votes[i].Expires = v.Expires
			}
		case l.hasQuorum() && l.Holders[0].ID != v.Was:
			l.Votes[i].Why = Replaced
		}
	}
}

// count returns on how many servers a token is, on how many it may be because they are silent, and
// how many have lost it.
func (l *Lock) count(token string) (on, silent, lost int) {
	for _, v := range l.Votes {
		switch {
		case v.Token == token:
			on++
		case v.Was == token && v.Why == "":
			silent++
		case v.Was == token:
			lost++
		}
	}
	return on, silent, lost
}

// believes reports whether the client of a token may take the lock for its own: the token has a
// majority of all servers, or would have it if none were silent or had lost it.
func (l *Lock) believes(token string) bool {
	on, silent, lost := l.count(token)
	return on+silent > 0 && on+silent+lost >= Quorum(len(l.Votes))
}

// ofMajority returns the lock with the holders that have a majority, as far as is known, or have lost it to none yet.
func (l *Lock) ofMajority() Lock {
	one := *l
	one.Holders = slices.DeleteFunc(slices.Clone(l.Holders), func(h Holder) bool {
		return !l.believes(h.ID) || slices.ContainsFunc(l.Votes, func(v Vote) bool { return v.Was == h.ID && v.Why == Replaced })
	})
	return one
}

// voted compares two reads of a Redlock; was is nil if there was none before, and l if no server has it any more.
func (d *Differ) voted(old Snapshot, was, l *Lock, lost lostVotes) {
	one, shown := *d, l
	one.Events = nil
	switch {
	case was == nil:
		unread := 0
		for i := range old.Nodes {
			if n := &old.Nodes[i]; !n.Up || !n.Scanned || n.Unread != "" {
				unread++
			}
		}
		// A token that holds it now had no majority before if most servers had none.
		one.Watched = d.Watched || len(old.Nodes) > 0 && unread < Quorum(len(l.Votes))
		one.Added(l.ofMajority())
	case l == nil:
		before := was.ofMajority()
		one.judgeVotes(was, was.gone(lost), before, Lock{})
		one.Removed(before)
		shown = was
	default:
		before, now := was.ofMajority(), l.ofMajority()
		one.judgeVotes(was, l, before, now)
		one.Changed(before, now)
	}
	for i := range one.Events {
		one.Events[i].Lock = *shown
	}
	d.Events = append(d.Events, one.Events...)
}

// gone returns a Redlock that no server has any more, with the votes that servers have lost.
func (l *Lock) gone(lost lostVotes) *Lock {
	gone := &Lock{Votes: make([]Vote, len(l.Votes))}
	for i, v := range l.Votes {
		gone.Votes[i] = Vote{Node: v.Node}
		if why := lost[voteID{ID{v.Node, l.DB, l.Key}, v.last()}]; why != "" {
			gone.Votes[i].Was, gone.Votes[i].Why = v.last(), why
		} else if v.Why != "" {
			gone.Votes[i].Was, gone.Votes[i].Why = v.Was, v.Why
		}
	}
	return gone
}

// judgeVotes finds out why a hold of a Redlock has ended, and whether the time of an end or a begin is
// unknown: the servers that decide were silent before.
func (d *Differ) judgeVotes(was, l *Lock, before, now Lock) {
	quorum := Quorum(len(l.Votes))
	for _, h := range before.Holders {
		if _, stays := now.Holder(h.ID); stays {
			continue
		}
		on, silent, lost := l.count(h.ID)
		missed := 0
		for _, v := range l.Votes {
			if had := was.vote(v.Node); had.Unreachable && had.Was == h.ID && v.last() != h.ID {
				missed++
			}
			switch {
			case v.Was != h.ID || v.Why == "" || d.Reason == v.Why:
			case d.Reason == "" && v.Why != Replaced:
				d.Reason = v.Why
			default:
				d.Reason = Lost
			}
		}
		if on+silent+lost < quorum {
			d.Reason = ""
		}
		d.MissedEvents = d.MissedEvents || d.Reason == "" && on+silent+lost+missed >= quorum
	}
	for _, h := range now.Holders {
		if _, held := before.Holder(h.ID); held {
			continue
		}
		had := 0
		for _, v := range l.Votes {
			if before := was.vote(v.Node); v.Token == h.ID && (before.Unreachable || before.Token == h.ID) {
				had++
			}
		}
		d.MissedEvents = d.MissedEvents || had >= quorum
	}
}

// votesLost finds tokens that have lost their majority because servers have lost them.
func votesLost(l *Lock, now time.Time) string {
	for _, v := range l.Votes {
		on, silent, _ := l.count(v.Was)
		if v.Why == "" || on+silent >= Quorum(len(l.Votes)) {
			continue
		}
		var nodes []string
		var deadline time.Time
		for _, other := range l.Votes {
			switch {
			case other.Was == v.Was && other.Why != "":
				nodes = append(nodes, other.Node)
			case other.last() == v.Was:
				deadline = Later(deadline, other.Expires)
			}
		}
		next := "another client can get a majority"
		if l.hasQuorum() && l.Holders[0].ID != v.Was {
			next = l.Holders[0].Name() + " has a majority now"
		}
		until := ""
		if left := deadline.Sub(now); left > 0 {
			until = fmt.Sprintf(" for %s", humanize.Duration(left))
		}
		return fmt.Sprintf("%s lost the copies of %s, which is on %d of %d servers: %s, and both may work%s.", strings.Join(nodes, " and "), v.Was, on, len(l.Votes), next, until)
	}
	return ""
}

// restartedEmpty finds servers of a Redlock that have lost votes in a restart.
func restartedEmpty(s Snapshot, _ time.Time) string {
	lost := make(map[string]int)
	for _, l := range s.Locks {
		for _, v := range l.Votes {
			if v.Why == Lost || v.Why == Replaced {
				lost[v.Node]++
			}
		}
	}
	var all []string
	for i := range s.Nodes {
		if n := &s.Nodes[i]; lost[n.Addr] > 0 {
			when := "restarted"
			if n.Uptime > 0 {
				when += fmt.Sprintf(" %s ago", humanize.Duration(n.Uptime))
			}
			all = append(all, fmt.Sprintf("%s %s without the copies of %s", n.Addr, when, humanize.Plural(lost[n.Addr], "lock")))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "; ") + ", whose holders may still work."
}
