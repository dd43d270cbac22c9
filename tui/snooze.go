package tui

import (
	"time"

	"locktop/humanize"
	"locktop/keyspace"
)

// snoozeFor is the default duration of a snooze.
const snoozeFor = time.Hour

// snoozes holds the snoozed findings.
type snoozes struct {
	until map[findingID]time.Time
	each  time.Duration // duration of a snooze; 0 means snoozeFor
}

func idOf(f *keyspace.Finding) findingID { return findingID{f.ID, f.Lock, f.Server} }

// toggleSnooze snoozes the findings, or wakes them if the first one is snoozed.
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

// quietened returns the view model with the snoozed findings moved from findings to snoozed.
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

// comesBack says when the snooze of a finding ends.
func (s *state) comesBack(f *keyspace.Finding) string {
	return "snoozed, back in " + humanize.Duration(s.snoozes.until[idOf(f)].Sub(s.now))
}
