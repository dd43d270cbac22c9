package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"locktop/tui/widget"
)

// span writes a duration in at most seven cells, as precisely as anybody wants
// to know it: 0.4 ms, 250 ms, 2.1 s, 41 s, 3 m 07, 3 h 12, 2 d 04.
func span(d time.Duration) string {
	switch {
	case d < 0:
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
	case d < 24*time.Hour:
		return pair(d, time.Hour, 'h')
	default:
		return fmt.Sprintf("%d d %02d", d/(24*time.Hour), d/time.Hour%24)
	}
}

// left writes the time that is left, which people watch as it falls: in tenths
// of a second to the last minute.
func left(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	if d < time.Minute {
		return tenths(d)
	}
	return span(d)
}

// setting writes a duration that somebody chose, and so a round one, without
// the zeros that stand still: 5 s, 1.5 s, 20 ms.
func setting(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', 3, 64) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + " s"
	default:
		return span(d)
	}
}

func tenths(d time.Duration) string {
	n := d / (100 * time.Millisecond)
	return fmt.Sprintf("%d.%d s", n/10, n%10)
}

func pair(d, unit time.Duration, letter rune) string {
	return fmt.Sprintf("%d %c %02d", d/unit, letter, d%unit/(unit/60))
}

// stopwatch writes mm:ss, and h:mm:ss from an hour on.
func stopwatch(d time.Duration) string {
	s := int(max(d, 0) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// count writes a number with its thousands apart: 4,310.
func count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// several writes a number and what is counted, in the singular or with an s.
func several[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

// severalWere is several with the verb that goes with it.
func severalWere[N int | int64](n N, what string) string {
	if n == 1 {
		return several(n, what) + " was"
	}
	return several(n, what) + " were"
}

// wrap breaks a text into lines of w cells, n at most. What does not fit into
// them ends in an ellipsis.
func wrap(g widget.Glyphs, text string, w, n int) []string {
	var all []string
	words := strings.Fields(text)
	if n <= 0 {
		return nil
	}
	for len(words) > 0 && len(all) < n-1 {
		line := words[0]
		for words = words[1:]; len(words) > 0 && widget.Width(line)+1+widget.Width(words[0]) <= w; words = words[1:] {
			line += " " + words[0]
		}
		all = append(all, line)
	}
	if len(words) == 0 {
		return all
	}
	return append(all, g.FitEnd(strings.Join(words, " "), w))
}
