package tui

import (
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// snoozeFor is how long a finding is snoozed, unless :snooze says otherwise.
const snoozeFor = time.Hour

// snoozes are the findings that the user does not want to see, until when.
type snoozes struct {
	until map[findingID]time.Time
	each  time.Duration // of a snooze; 0 = snoozeFor
}

func idOf(f *keyspace.Finding) findingID { return findingID{f.ID, f.Lock, f.Server} }

// toggle snoozes findings, or wakes them if the first of them is snoozed.
func (s *state) toggleSnooze(found []keyspace.Finding) {
	if len(found) == 0 {
		s.reject("no finding to snooze")
		return
	}
	if _, asleep := s.snoozes.until[idOf(&found[0])]; asleep {
		for i := range found {
			delete(s.snoozes.until, idOf(&found[i]))
		}
		s.notify("woken: " + humanize.Plural(len(found), "finding"))
	} else {
		if s.snoozes.until == nil {
			s.snoozes.until = map[findingID]time.Time{}
		}
		for i := range found {
			s.snoozes.until[idOf(&found[i])] = s.now.Add(s.snoozes.length())
		}
		s.notify("snoozed for " + humanize.Setting(s.snoozes.length()) + ": " + humanize.Plural(len(found), "finding") + "; z wakes")
	}
	if s.live != nil {
		s.live = s.live.quietened(s)
	}
	if s.paused != nil {
		s.paused.picture = s.paused.picture.quietened(s)
	}
	s.next = viewChangedMsg{}
}

func (z *snoozes) length() time.Duration {
	if z.each == 0 {
		return snoozeFor
	}
	return z.each
}

// quietened is the picture with its findings apart: those that are snoozed do not
// count for anything.
func (p *viewModel) quietened(s *state) *viewModel {
	for id, until := range s.snoozes.until {
		if !s.now.Before(until) {
			delete(s.snoozes.until, id)
		}
	}
	if len(s.snoozes.until) == 0 && len(p.snoozed) == 0 {
		return p
	}
	q := *p
	q.findings, q.snoozed = nil, nil
	for _, f := range p.all {
		if _, asleep := s.snoozes.until[idOf(&f)]; asleep {
			q.snoozed = append(q.snoozed, f)
		} else {
			q.findings = append(q.findings, f)
		}
	}
	q.rank()
	return &q
}

// comesBack says when a snoozed finding does.
func (s *state) comesBack(f *keyspace.Finding) string {
	return "snoozed, back in " + humanize.Duration(s.snoozes.until[idOf(f)].Sub(s.now))
}
