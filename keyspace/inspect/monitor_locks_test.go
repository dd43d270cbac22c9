package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

func TestOnlyCommandsWithTheKeyOfALockArePassedOn(t *testing.T) {
	t.Parallel()
	m := NewLockMonitor([]string{"set", "evalsha", "del"}, 0)
	m.Add("lock:a\n\"\xff", "job")
	key := `"lock:a\n\"\xff"`
	for line, want := range map[string]string{
		`+1700000000.250000 [3 10.2.3.4:52312] "SET" ` + key + ` "tok\"en" "nx"`: "3 10.2.3.4:52312 [SET lock:a\n\"\xff tok\"en nx]",
		`+1700000000.250000 [0 [::1]:52312] "evalsha" "ab" "1" "job" "x"`:        "0 [::1]:52312 [evalsha ab 1 job x]",
		`+1700000000.250000 [0 lua] "DEL" "job"`:                                 "0  [DEL job]",
		`+1700000000.250000 [0 10.2.3.4:1] "GET" "job"`:                          "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET" "job2" "job\""`:                 "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET" "x" "y \"job\" z"`:              "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET" "x" "job`:                       "",
		`+1700000000.250000 [0 10.2.3.4:1] "SET"`:                                "",
		`+1700000000.250000 [0 10.2.3.4:1] "job"`:                                "",
		`+OK`: "",
	} {
		got := ""
		err := m.read(bufio.NewReaderSize(strings.NewReader(line+"\r\n"), 4096), time.Now, func(c Command) error {
			got = fmt.Sprint(c.DB, " ", c.Addr, " ", c.Args)
			check.True(t, c.At.Equal(time.UnixMilli(1_700_000_000_250)), "it was at %v", c.At)
			return nil
		})
		check.True(t, got == want && err != nil,
			"%s: %q, %v, want %q", line, got, err, want) // the text ends, as if the server closed the connection
	}
}

// ticking is a text of lines of MONITOR whose clock goes on with each line.
type ticking struct {
	line  string
	lines int
	every time.Duration
	now   time.Time
}

func (r *ticking) Read(p []byte) (int, error) {
	if r.lines--; r.lines < 0 {
		return 0, io.EOF
	}
	r.now = r.now.Add(r.every)
	return copy(p, r.line), nil
}

// The limit is 100 commands per second for 5 s.
func TestABusyServerEndsMonitor(t *testing.T) {
	t.Parallel()
	for perSecond, want := range map[int]bool{90: false, 110: true} {
		m := NewLockMonitor([]string{"set"}, 100)
		text := &ticking{line: "+1.0 [0 10.2.3.4:1] \"GET\" \"x\"\r\n", lines: 20 * perSecond, every: time.Second / time.Duration(perSecond)}
		err := m.read(bufio.NewReaderSize(text, 4096), func() time.Time { return text.now }, nil)
		busy, is := errors.AsType[BusyError](err)
		check.True(t, is == want && (!is || busy.PerSecond == int64(perSecond)),
			"with %d commands per second the error is %v", perSecond, err)
	}
}

// A lock becomes known after its first hold has begun: the attempts before are passed on, too.
func TestTheAttemptsBeforeALockIsKnownArePassedOn(t *testing.T) {
	t.Parallel()
	m := NewLockMonitor([]string{"set"}, 0)
	var got []string
	line := func(key, token string) string {
		return fmt.Sprintf("+1.0 [0 10.2.3.4:1] \"SET\" %q %q \"NX\"\r\n", key, token)
	}
	feed := func(text string) {
		_ = m.read(bufio.NewReaderSize(strings.NewReader(text), 4096), time.Now, func(c Command) error {
			got = append(got, c.Args[1]+c.Args[2])
			return nil
		})
	}
	feed(line("a", "1") + line("b", "1") + line("a", "2"))
	m.Add("a")
	feed(line("b", "2") + line("a", "3"))
	m.Add("a", "b")
	feed(line("a", "4"))
	check.DeepEqual(t, got, []string{"a1", "a2", "a3", "b1", "b2", "a4"}, "it passes on")
	for range 40_000 {
		feed(line("c", strings.Repeat("x", 100)))
	}
	check.True(t, m.keptBytes <= maxKept && len(m.kept) >= 1000, "it keeps %d lines of %d bytes", len(m.kept), m.keptBytes)
}

func TestALockMonitorPassesOnWhatARealServerRuns(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(t).Addr()})
	defer rdb.Close()
	m := NewLockMonitor([]string{"set", "eval", "del"}, 0)
	m.Add("lock:a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := m.Run(ctx, rdb, time.Minute, func() error {
		go func() {
			for _, key := range []string{"other", "lock:a"} {
				rdb.SetNX(ctx, key, "token", time.Minute)
				rdb.Eval(ctx, "return redis.call('DEL', KEYS[1])", []string{key})
			}
		}()
		return nil
	}, func(c Command) error {
		who := "script"
		if c.Addr != "" {
			who = "client"
		}
		if got = append(got, who+" "+strings.ToLower(c.Args[0])); len(got) == 3 {
			cancel()
		}
		return nil
	})
	want := []string{"client set", "client eval", "script del"}
	check.True(t, slices.Equal(got, want) && errors.Is(err, context.Canceled), "it passes on %q, %v, want %q", got, err, want)
	check.ErrorIs(t, m.Run(t.Context(), rdb, 50*time.Millisecond, func() error { return nil }, nil), nil,
		"the end of the window is an error")
}
