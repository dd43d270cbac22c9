package humanize_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/humanize"
)

const (
	ms   = time.Millisecond
	hour = time.Hour
	day  = 24 * hour
)

func TestDurationsAreAsPreciseAsAReaderWants(t *testing.T) {
	each(t, humanize.Duration, map[time.Duration]string{
		-time.Second:                  "0 s",
		49 * time.Microsecond:         "<0.1 ms",
		0:                             "0 s",
		412 * time.Microsecond:        "0.4 ms",
		1500 * time.Microsecond:       "1.5 ms",
		250 * ms:                      "250 ms",
		999*ms + 600*time.Microsecond: "1.0 s",
		2149 * ms:                     "2.1 s",
		9960 * ms:                     "9 s",
		41*time.Second + 900*ms:       "41 s",
		59*time.Second + 999*ms:       "59 s",
		3*time.Minute + 7*time.Second: "3 m 07",
		3*hour + 12*time.Minute:       "3 h 12",
		2*day + 4*hour:                "2 d 4 h",
		time.Duration(math.MaxInt64):  "106751 d",
	})
}

func TestMeasuredTimesHaveThreeDigits(t *testing.T) {
	each(t, humanize.Precise, map[time.Duration]string{
		0:                                "0 s",
		999:                              "999 ns",
		1_000:                            "1 µs",
		123_456:                          "123 µs",
		999_999:                          "1 ms",
		1_234_567:                        "1.23 ms",
		-1_234_567:                       "-1.23 ms",
		45_678_901:                       "45.7 ms",
		999_900 * time.Microsecond:       "1 s",
		12_345 * ms:                      "12.3 s",
		59*time.Second + 999*ms:          "59 s",
		2*time.Minute + 5*time.Second:    "2 m 05",
		time.Duration(math.MinInt64 + 1): "-106751 d",
	})
}

func TestTheRemainingTimeHasTenthsInTheLastMinute(t *testing.T) {
	each(t, humanize.Left, map[time.Duration]string{
		-1: "0.0 s", 13_590 * ms: "13.5 s", 59_999 * ms: "59.9 s", 90 * time.Second: "1 m 30",
	})
}

func TestSettingsHaveNoZerosAtTheirEnd(t *testing.T) {
	each(t, humanize.Setting, map[time.Duration]string{
		0: "0 ms", 500 * time.Microsecond: "0.5 ms", 20 * ms: "20 ms", 1500 * ms: "1.5 s", 5 * time.Second: "5 s",
		10 * time.Minute: "10 m", 90 * time.Second: "1 m 30", hour: "1 h", 90 * time.Minute: "1 h 30",
	})
}

func TestClocksHaveHoursWhenTheyNeedThem(t *testing.T) {
	each(t, humanize.Clock, map[time.Duration]string{
		-1: "00:00", 67 * time.Second: "01:07", hour + 67*time.Second: "1:01:07",
	})
}

func TestCountsHaveTheirThousandsApart(t *testing.T) {
	each(t, humanize.Count[int64], map[int64]string{
		0: "0", 999: "999", 4310: "4,310", -4310: "-4,310", -431: "-431", 1_234_567: "1,234,567", math.MinInt64: "-9,223,372,036,854,775,808",
	})
	for n, want := range map[int]string{0: "0 locks", 1: "1 lock", 4310: "4,310 locks"} {
		check.Equal(t, humanize.Plural(n, "lock"), want, "%d", n)
	}
	for n, want := range map[int]string{0: "0 times", 1: "once", 4310: "4,310 times"} {
		check.Equal(t, humanize.Times(n), want, "%d", n)
	}
}

func each[V ~int64](t *testing.T, write func(V) string, cases map[V]string) {
	t.Helper()
	for v, want := range cases {
		check.Equal(t, write(v), want, "%d", v)
	}
}

func TestAScoreThatIsATimeSaysWhen(t *testing.T) {
	now := time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC)
	for score, want := range map[float64]string{
		float64(now.Add(-2 * time.Minute).UnixMilli()): ", passed 2 m 00 ago",
		float64(now.Add(3 * time.Minute).Unix()):       ", in 3 m 00",
		0:                                              "", 17: "", 1e12: "", 4e12: "", -1: "",
	} {
		got := humanize.Score(score, now)
		check.True(t, got == want, "%.0f: %q, want %q", score, got, want)
	}
}

func TestMomentsAreFoundInTheSpan(t *testing.T) {
	local := time.FixedZone("CET", 3600)
	old := time.Local
	time.Local = local
	t.Cleanup(func() { time.Local = old })
	at := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, local)
	}
	span := humanize.Span{at(21, 9, 30, 20), at(22, 9, 45, 0)}
	now := humanize.Span{Last: at(22, 9, 45, 0)}
	for _, tt := range []struct {
		text string
		span humanize.Span
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
		got, err := humanize.ParseMoment(tt.text, at(22, 9, 30, 0), tt.span)
		check.True(t, got.Equal(tt.want) && (err == nil) == (tt.err == "") && (err == nil || strings.Contains(err.Error(), tt.err)),
			"%q is %v, %v, want %v %s", tt.text, got, err, tt.want, tt.err)
	}
}
