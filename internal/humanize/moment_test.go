package humanize

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
)

func TestMomentsAreFoundInTheSpan(t *testing.T) {
	local := time.FixedZone("CET", 3600)
	old := time.Local
	time.Local = local
	t.Cleanup(func() { time.Local = old })
	at := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, local)
	}
	span := Span{at(21, 9, 30, 20), at(22, 9, 45, 0)}
	now := Span{Last: at(22, 9, 45, 0)}
	for _, tt := range []struct {
		text string
		span Span
		want time.Time
		err  string
	}{
		{"03:12", span, at(22, 3, 12, 0), ""},
		{"03:12:07", span, at(22, 3, 12, 7), ""},
		{"23:59", span, at(21, 23, 59, 0), ""}, // the day before
		{"9:44", span, at(22, 9, 44, 0), ""},
		{"09:30:10", span, at(22, 9, 30, 10), ""},         // the latest of two
		{"2026-11-21 09:30", span, at(21, 9, 30, 20), ""}, // the begin is in this minute
		{"2026-11-21 09:30:10", span, time.Time{}, "2026-11-21 09:30:10 CET is not in the recording, which is from 2026-11-21 09:30:20 CET to 2026-11-22 09:45:00 CET"},
		{"2026-11-21 23:59:58", span, at(21, 23, 59, 58), ""},
		{"2026-11-21T23:59", span, at(21, 23, 59, 0), ""},
		{"2026-11-21T22:59:58Z", span, at(21, 23, 59, 58), ""},
		{"2026-11-21T22:59:58.25Z", span, at(21, 23, 59, 58).Add(250 * time.Millisecond), ""},
		{"-15m", span, at(22, 9, 15, 0), ""},
		{"90s", span, at(22, 9, 31, 30), ""},
		{"-30h", span, time.Time{}, "is not in the recording"},
		{"1h", span, time.Time{}, "is not in the recording"},
		{"yesterday", span, time.Time{}, "a time is like 03:12"},
		{"25:00", span, time.Time{}, "a time is like 03:12"},
		{"", span, time.Time{}, "a time is like 03:12"},
		{"09:46", now, at(21, 9, 46, 0), ""},
		{"1h", now, time.Time{}, "is later than now"},
		{"-90s", now, at(22, 9, 28, 30), ""},
	} {
		got, err := ParseMoment(tt.text, at(22, 9, 30, 0), tt.span)
		check.True(t, got.Equal(tt.want) && (err == nil) == (tt.err == "") && (err == nil || strings.Contains(err.Error(), tt.err)),
			"%q is %v, %v, want %v %s", tt.text, got, err, tt.want, tt.err)
	}
}
