package keyspace

import "slices"

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

// copyOf returns the lock as one server had it. Unlike a lock of the server, it has votes.
func (l *Lock) copyOf(v Vote) *Lock {
	one := *l
	h, _ := l.Holder(v.last())
	h.ID, h.Expires, h.Depth = v.last(), v.Expires, max(1, h.Depth)
	one.Holders = []Holder{h}
	return &one
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

// mayHold reports whether a token has a majority, as far as is known, or has lost it to none yet.
func (l *Lock) mayHold(token string) bool {
	return l.believes(token) && !slices.ContainsFunc(l.Votes, func(v Vote) bool { return v.Was == token && v.Why == Replaced })
}

// ofMajority returns the lock without the holders that have no majority.
func (l *Lock) ofMajority() Lock {
	one := *l
	one.Holders = slices.DeleteFunc(slices.Clone(l.Holders), func(h Holder) bool { return !l.mayHold(h.ID) })
	return one
}

// voted compares two reads of a Redlock; was is nil if there was none before.
func (d *Differ) voted(old Snapshot, was, l *Lock) {
	one, now := *d, l.ofMajority()
	one.Events = nil
	if was == nil {
		unread := 0
		for i := range old.Nodes {
			if n := &old.Nodes[i]; !n.Up || !n.Scanned || n.Unread != "" {
				unread++
			}
		}
		// A token that holds it now had no majority before if most servers had none.
		one.Watched = d.Watched || len(old.Nodes) > 0 && unread < Quorum(len(l.Votes))
		one.Added(now)
	} else {
		before := was.ofMajority()
		one.judgeVotes(was, l, before, now)
		one.Changed(before, now)
	}
	for i := range one.Events {
		one.Events[i].Lock = *l
	}
	d.Events = append(d.Events, one.Events...)
}

// votesGone reports a Redlock that no server has any more.
func (d *Differ) votesGone(was *Lock, lost lostVotes) {
	gone := Lock{Votes: make([]Vote, len(was.Votes))}
	for i, v := range was.Votes {
		gone.Votes[i].Node = v.Node
		if why := lost[voteID{ID{v.Node, was.DB, was.Key}, v.last()}]; why != "" {
			gone.Votes[i].Was, gone.Votes[i].Why = v.last(), why
		} else if v.Why != "" {
			gone.Votes[i].Was, gone.Votes[i].Why = v.Was, v.Why
		}
	}
	one, before := *d, was.ofMajority()
	one.Events = nil
	one.judgeVotes(was, &gone, before, Lock{})
	one.Removed(before)
	for i := range one.Events {
		one.Events[i].Lock = *was
	}
	d.Events = append(d.Events, one.Events...)
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
