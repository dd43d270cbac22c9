package humanize

import (
	"errors"
	"fmt"
	"time"
)

// MomentForms names the forms that ParseMoment accepts, for help texts and errors.
const MomentForms = "03:12, 03:12:07, 2026-11-22 03:12, or -15m"

// Span is the time that a recording contains. A zero First means that the begin is not
// known, and that Last is now.
type Span struct{ First, Last time.Time }

// ParseMoment returns a moment of a span that a user named:
//
//	03:12, 03:12:07                        the latest such time in the span
//	2026-11-22 03:12, with T, with a zone  that time
//	-15m, 90s                              so long before or after origin
//
// Times without a zone are local. It returns an error with the span if the moment is not in
// it. A time without seconds means the whole minute: if the span begins within this minute,
// the moment is the begin.
func ParseMoment(text string, origin time.Time, s Span) (time.Time, error) {
	at, unit, err := parseMoment(text, origin, s.Last)
	if err != nil {
		return time.Time{}, err
	}
	switch begins := !s.First.IsZero(); {
	case begins && at.Before(s.First) && at.Add(unit).After(s.First):
		return s.First, nil
	case begins && (at.Before(s.First) || at.After(s.Last)):
		return time.Time{}, fmt.Errorf("%s is not in the recording, which is from %s to %s", moment(at), moment(s.First), moment(s.Last))
	case at.After(s.Last):
		return time.Time{}, fmt.Errorf("%s is later than now", moment(at))
	}
	return at, nil
}

func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// parseMoment returns a moment, and the precision of the text.
func parseMoment(text string, origin, last time.Time) (at time.Time, unit time.Duration, err error) {
	if d, err := time.ParseDuration(text); err == nil {
		return origin.Add(d), 0, nil
	}
	for _, form := range momentForms() {
		if at, err := time.ParseInLocation(form.layout, text, time.Local); err == nil {
			if !form.date {
				at = latest(at, last.Local())
			}
			return at, form.unit, nil
		}
	}
	return time.Time{}, 0, errors.New("a time is like " + MomentForms)
}

// momentForm is one form of a moment.
type momentForm struct {
	layout string
	date   bool
	unit   time.Duration
}

func momentForms() []momentForm {
	return []momentForm{
		{"15:04:05", false, time.Second},
		{"15:04", false, time.Minute},
		{"2006-01-02 15:04:05", true, time.Second},
		{"2006-01-02 15:04", true, time.Minute},
		{"2006-01-02T15:04:05", true, time.Second},
		{"2006-01-02T15:04", true, time.Minute},
		{time.RFC3339, true, time.Second},
	}
}

// latest returns the latest time with the clock of at that is not later than last.
func latest(at, last time.Time) time.Time {
	day := func(n int) time.Time {
		return time.Date(last.Year(), last.Month(), last.Day()+n, at.Hour(), at.Minute(), at.Second(), 0, last.Location())
	}
	if today := day(0); !today.After(last) {
		return today
	}
	return day(-1)
}
