// Package humanize formats durations and counts for people, and reads the moments that
// they type. Every text of locktop uses it, so that a number looks the same everywhere.
// JSON and CSV contain plain numbers; flags and scenarios accept Go's syntax.
package humanize

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Duration formats a duration in at most seven cells: 0.4 ms, 250 ms, 2.1 s, 41 s,
// 3 m 07, 3 h 12, 2 d 4 h. A negative duration is 0.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < 50*time.Microsecond:
		return "<0.1 ms"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d.Round(time.Millisecond) < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	case d < 10*time.Second-50*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return pair(d, time.Minute, 'm')
	case d < day:
		return pair(d, time.Hour, 'h')
	case d < 10*day:
		return fmt.Sprintf("%d d %d h", d/day, d/time.Hour%24)
	default:
		return fmt.Sprintf("%d d", d/day)
	}
}

// Precise formats a measured duration of less than 1 min with three digits, so that
// readers can compare similar ones: 85 µs, 1.23 ms, 45.6 s.
func Precise(d time.Duration) string {
	if d < 0 {
		return "-" + Precise(-d)
	}
	if d == 0 {
		return "0 s"
	}
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case threeDigits(d) < time.Millisecond:
		return digits(d, time.Microsecond) + " µs"
	case threeDigits(d) < time.Second:
		return digits(d, time.Millisecond) + " ms"
	case threeDigits(d) < time.Minute:
		return digits(d, time.Second) + " s"
	}
	return Duration(d)
}

// threeDigits rounds a duration to its first three digits.
func threeDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/1000 >= unit {
		unit *= 10
	}
	return d.Round(unit)
}

// digits formats a duration in a unit, with three digits and no trailing zeros.
func digits(d, unit time.Duration) string {
	return strconv.FormatFloat(float64(threeDigits(d))/float64(unit), 'f', -1, 64)
}

// Left formats a remaining time: below 1 min in tenths of a second.
func Left(d time.Duration) string {
	if d = max(d, 0); d < time.Minute {
		n := d / (100 * time.Millisecond)
		return fmt.Sprintf("%d.%d s", n/10, n%10)
	}
	return Duration(d)
}

// Setting formats a configured duration without trailing zeros: 5 s, 1.5 s, 20 ms,
// 10 m, 1 h 30.
func Setting(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', 3, 64) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + " s"
	default:
		return strings.TrimSuffix(Duration(d), " 00")
	}
}

func pair(d, unit time.Duration, letter rune) string {
	return fmt.Sprintf("%d %c %02d", d/unit, letter, d%unit/(unit/60))
}

// Clock formats a duration as mm:ss, and from 1 h on as h:mm:ss.
func Clock(d time.Duration) string {
	s := int(max(d, 0) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Count formats a number with a comma between thousands: 4,310.
func Count[N int | int64 | uint64](n N) string {
	sign, digits := "", fmt.Sprint(n)
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Plural formats a number with its noun, which gets an s unless n is 1: 1 lock,
// 4,310 locks.
func Plural[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Times formats a number of times: once, 4,310 times.
func Times[N int | int64 | uint64](n N) string {
	if n == 1 {
		return "once"
	}
	return Count(n) + " times"
}

// Score says when the score of a sorted set is, as ", in 3 m 10" or ", passed 2 m ago". It is
// "" for a score that is no Unix time, in seconds or milliseconds, within a year of now.
func Score(score float64, now time.Time) string {
	const year = 365 * 24 * time.Hour
	for _, at := range []time.Time{time.UnixMilli(int64(score)), time.Unix(int64(score), 0)} {
		switch left := at.Sub(now); {
		case left.Abs() > year:
		case left > 0:
			return ", in " + Left(left)
		default:
			return ", passed " + Left(-left) + " ago"
		}
	}
	return ""
}

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
	for _, form := range momentForms {
		if at, err := time.ParseInLocation(form.layout, text, time.Local); err == nil {
			if !form.date {
				at = latest(at, last.Local())
			}
			return at, form.unit, nil
		}
	}
	return time.Time{}, 0, errors.New("a time is like " + MomentForms)
}

// momentForms are the forms of a moment.
var momentForms = []struct {
	layout string
	date   bool
	unit   time.Duration
}{
	{"15:04:05", false, time.Second},
	{"15:04", false, time.Minute},
	{"2006-01-02 15:04:05", true, time.Second},
	{"2006-01-02 15:04", true, time.Minute},
	{"2006-01-02T15:04:05", true, time.Second},
	{"2006-01-02T15:04", true, time.Minute},
	{time.RFC3339, true, time.Second},
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
