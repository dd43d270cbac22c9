package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// loadingServer starts a server that loads its data until done is called.
func loadingServer(t *testing.T) (addr string, done func()) {
	t.Helper()
	srv := server.DebugForTest(t)
	rdb := clientWith(t, redis.Options{Addr: srv.Addr(), MaxRetries: -1, ReadTimeout: longestWait})
	ctx := context.Background()
	for _, argv := range [][]any{
		{"SET", "lock:a", token},
		{"EVAL", "for i=1,20000 do redis.call('SET','key:'..i,i) end return 1", 0},
		{"CONFIG", "SET", "loading-process-events-interval-bytes", 1024},
		{"CONFIG", "SET", "key-load-delay", 2_000}, // us per key
	} {
		if err := rdb.Do(ctx, argv...).Err(); err != nil {
			if strings.Contains(err.Error(), "Unsupported CONFIG") {
				t.Skip("this redis-server answers nothing while it loads so few keys: Redis 6.2 does")
			}
			t.Fatal(err)
		}
	}
	loaded := make(chan error, 1)
	go func() { loaded <- rdb.Do(ctx, "DEBUG", "RELOAD").Err() }()
	other := clientWith(t, redis.Options{Addr: srv.Addr(), ReadTimeout: longestWait})
	within(t, longestWait, func() bool { return redis.HasErrorPrefix(other.Ping(ctx).Err(), "LOADING") })
	return srv.Addr(), func() {
		check.ErrorIs(t, other.ConfigSet(ctx, "key-load-delay", "0").Err(), nil)
		check.ErrorIs(t, <-loaded, nil)
	}
}

// Each command waits for a server that loads its data, says so once, and then does its work. An interrupt ends the wait.
func TestCommandsWaitForAServerThatLoadsItsData(t *testing.T) {
	testtier.Long(t, "a server loads for seconds")
	t.Parallel()
	addr, done := loadingServer(t)
	commands := map[*spawned]int{} // with their exit codes
	for line, code := range map[string]int{
		"list --json": exitFine, "doctor --for 0s --json": exitFindings, "inspect lock:a": exitFine, "who lock:a --for 100ms": exitFailure,
		"release lock:a --dry-run": exitFine, "watch --for 10ms": exitFine, "record --for 10ms " + filepath.Join(t.TempDir(), "a.lockrec"): exitFine,
	} {
		commands[spawn(t, append(strings.Fields(line), "-u", "redis://"+addr, "--timeout", "30s")...)] = code
	}
	interrupted := spawn(t, "list", "-u", "redis://"+addr, "--timeout", "30s")
	interrupted.says("waiting for at most")
	interrupted.signal(os.Interrupt)
	interrupted.exits(exitInterrupted)
	for s := range commands {
		s.says("LOADING")
	}
	done()
	waits := regexp.MustCompile(`^[^\n]*connect redis://` + addr + `: LOADING \w+ is loading the dataset in memory; waiting for at most 5 m, Ctrl-C ends it`)
	for s, code := range commands {
		s.exits(code)
		errs := s.errs.String()
		check.True(t, strings.Count(errs, "LOADING") == 1 && waits.MatchString(errs), "%q: %s", s.cmd.Args, errs)
	}
}
