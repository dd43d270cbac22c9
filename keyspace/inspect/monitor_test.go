package inspect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

func TestTheLineWithKeyAndTokenIsFound(t *testing.T) {
	t.Parallel()
	q := MonitorQuery{Key: "lock:a\n\"\xff", Tokens: []string{"tok\\en~3f2a9c0d7b1e4f86"}, DB: 3}
	key, token := `"lock:a\n\"\xff"`, `"tok\\en~3f2a9c0d7b1e4f86"`
	for _, c := range []struct{ line, want string }{
		{`+1700000000.250000 [3 10.2.3.4:52312] "EVALSHA" "ab" "1" ` + key + ` ` + token, "10.2.3.4:52312 evalsha"},
		{`+1700000000.250000 [3 [::1]:52312] "SET" ` + key + ` ` + token + ` "PX" "100"`, "[::1]:52312 set"},
		{`+1700000000.250000 [3 unix:/run/redis.sock] "set" ` + key + ` ` + token, "unix:/run/redis.sock set"},
		{`+1700000000.250000 [0 10.2.3.4:1] "SET" ` + key + ` ` + token, ""},
		{`+1700000000.250000 [3 lua] "SET" ` + key + ` ` + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" ` + key + ` "another"`, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" "lock:ab" ` + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" "x` + key[1:] + ` ` + token, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "SET" ` + key + ` ` + token + ` "PX" "100" "nx"`, ""},
		{`+1700000000.250000 [3 10.2.3.4:1] "GET" ` + key, ""},
		{`+OK`, ""},
		{`garbage [3 x] "` + key + token, ""},
	} {
		got, err := q.read(bufio.NewReaderSize(strings.NewReader("+1.0 [3 1.1.1.1:1] \"GET\" \"x\"\r\n"+c.line+"\r\n"), 4096))
		said := strings.TrimSpace(got.Addr + " " + got.Command)
		check.True(t, said == c.want, "%s: %q, %v, want %q", c.line, said, err, c.want)
		check.True(t, c.want == "" || got.At.Equal(time.UnixMilli(1_700_000_000_250)), "it was at %v", got.At)
	}
}

// endless sends lines of MONITOR that match nothing.
type endless struct{ line string }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.line), nil }

func TestMonitorReceivesNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	q := MonitorQuery{Key: "a", Tokens: []string{"b"}}
	for _, line := range []string{"+1.0 [0 x] \"GET\" \"" + strings.Repeat("c", 1000) + "\"\r\n", strings.Repeat("without an end", 100)} {
		counted := &counter{from: endless{line}}
		_, err := q.read(bufio.NewReaderSize(counted, 4096))
		check.True(t, err != nil && strings.Contains(err.Error(), "64 MiB"), "the error is %v", err)
		check.True(t, counted.bytes <= maxMonitorBytes+1<<20, "it received %d bytes", counted.bytes)
	}
}

type counter struct {
	from  io.Reader
	bytes int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += n
	return n, err
}

func TestMonitorEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(t).Addr()})
	defer rdb.Close()
	q := MonitorQuery{Key: "a", Tokens: []string{"b"}, Window: 200 * time.Millisecond}
	began := time.Now()
	_, err := Monitor(t.Context(), rdb, q)
	check.True(t, errors.Is(err, ErrNotSighted) && time.Since(began) >= 200*time.Millisecond,
		"after %v, the error is %v", time.Since(began), err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !strings.Contains(rdb.ClientList(ctx).Val(), "flags=O") {
			if ctx.Err() != nil {
				return
			}
		}
		cancel()
	}()
	q.Window = time.Minute
	_, err = Monitor(ctx, rdb, q)
	check.ErrorIs(t, err, context.Canceled)
	onDial := *rdb.Options()
	ctx, cancel = context.WithCancel(t.Context())
	onDial.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := rdb.Options().Dialer(ctx, network, addr)
		cancel()
		return conn, err
	}
	early := redis.NewClient(&onDial)
	defer early.Close()
	_, err = Monitor(ctx, early, q)
	check.ErrorIs(t, err, context.Canceled, "canceled between dial and AUTH")
	for until := time.Now().Add(10 * time.Second); strings.Contains(rdb.ClientList(t.Context()).Val(), "flags=O"); {
		check.Require(t, !time.Now().After(until), "it still runs")
	}
}

func TestMonitorSaysThatItIsRefused(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(t).Addr()})
	defer rdb.Close()
	check.NoError(t, server.SetUser(t.Context(), rdb, "tester", "reset", "on", ">secret", "~*", "+ping"))
	for pass, want := range map[string]string{"secret": "this user may not run MONITOR", "wrong": "AUTH: WRONGPASS"} {
		as := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, Username: "tester", Password: pass})
		_, err := Monitor(t.Context(), as, MonitorQuery{Key: "a", Tokens: []string{"b"}, Window: time.Minute})
		check.True(t, err != nil && strings.HasPrefix(err.Error(), want), "the error is %v, want %s", err, want)
		as.Close()
	}
}
