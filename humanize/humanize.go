// Package humanize writes durations and counts for people. Every text that
// locktop prints takes them from here, so that one figure looks the same on the
// screen, in a finding, in a table and in a report. JSON and CSV have plain
// numbers, and what is typed in (flags, scenarios) keeps the syntax of Go.
package humanize

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Duration writes a duration in at most seven cells, as precisely as a reader
// wants to know it: 0.4 ms, 250 ms, 2.1 s, 41 s, 3 m 07, 3 h 12, 2 d 04. What is
// below zero is zero.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
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
	default:
		return fmt.Sprintf("%d d %02d", d/day, d/time.Hour%24)
	}
}

// Precise writes a measured duration of less than a minute with three digits,
// so that similar ones can be compared: 85 µs, 1.23 ms, 45.6 s.
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

// digits writes a duration in a unit, with three digits and no trailing zeros.
func digits(d, unit time.Duration) string {
	return strconv.FormatFloat(float64(threeDigits(d))/float64(unit), 'f', -1, 64)
}

// Left writes the time that is left, which people watch as it falls: in tenths
// of a second to the last minute.
func Left(d time.Duration) string {
	if d = max(d, 0); d < time.Minute {
		n := d / (100 * time.Millisecond)
		return fmt.Sprintf("%d.%d s", n/10, n%10)
	}
	return Duration(d)
}

// Setting writes a duration that somebody chose, and so a round one, without
// zeros at its end: 5 s, 1.5 s, 20 ms, 10 m, 1 h 30.
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

// Clock writes mm:ss, and h:mm:ss from an hour on.
func Clock(d time.Duration) string {
	s := int(max(d, 0) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Count writes a number with its thousands apart: 4,310.
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

// Plural writes a number and what is counted, in the singular or with an s:
// 1 lock, 4,310 locks.
func Plural[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Times writes how often: once, 4,310 times.
func Times[N int | int64 | uint64](n N) string {
	if n == 1 {
		return "once"
	}
	return Count(n) + " times"
}
