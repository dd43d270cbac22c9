package contest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// observedRateGoal is the least rate of a lock beside observers, to the rate without them.
const observedRateGoal = 0.9

// observedKinds returns all kinds of locks of package lock.
func observedKinds() []Contender {
	return []Contender{
		{Name: "mutex", Open: openLocktop((*lock.Client).Mutex)},
		{Name: "reentrant", Open: openLocktop((*lock.Client).Reentrant)},
		{Name: "fair", Open: openLocktop((*lock.Client).Fair)},
		{Name: "semaphore, 2 permits", Open: openLocktop(func(c *lock.Client, key string, o lock.Options) lock.Locker { return c.Semaphore(key, 2, o) })},
		{Name: "rw, every third reads", Open: openLocktopRW},
		{Name: "all, 2 keys", Open: openLocktop(func(c *lock.Client, key string, o lock.Options) lock.Locker {
			return c.All([]string{key, key + "-too"}, o)
		})},
		{Name: "redlock, 1 node", Open: openRedlock},
	}
}

// observed measures each kind of lock without observers, beside them, and without them again.
func observed(ctx context.Context, t *Testbed, size Size) (_ Result, err error) {
	result := Result{
		Title: "B10: locks that locktop watches",
		About: "16 clients, each like a process of its own, lock one key, hold it for 5 ms and want it again at once. Beside them run `locktop watch`, `locktop contention`, `locktop export` and two screens, all on the same two cores. The ratios are those of neighbouring windows: with observers to without, and, as the noise, without to without. Commands are those of the server per acquire, with those of the observers.",
	}
	rounds, work := 3, Work{Warm: 500 * time.Millisecond, Length: 2 * time.Second, Hold: 5 * time.Millisecond}
	if size == Quick {
		rounds, work.Length = 1, 500*time.Millisecond
	}
	program, remove, err := buildLocktop(ctx)
	if err != nil {
		return result, err
	}
	defer remove()
	setting := Setting{Clients: 16, Apart: true, Hot: true, ReadEvery: 3, Lease: longLease(), Work: work}
	kinds := observedKinds()
	var without, beside, again [][]Series // by round
	for range rounds {
		for _, phase := range []*[][]Series{&without, &beside, &again} {
			stop := func() error { return nil }
			if phase == &beside {
				if stop, err = startObservers(ctx, program, t.server.Addr()); err != nil {
					return result, err
				}
			}
			all, err := t.runRounds(ctx, kinds, 1, setting)
			if err = errors.Join(err, stop()); err != nil {
				return result, fmt.Errorf("B10: %w", err)
			}
			*phase = append(*phase, all)
		}
	}
	table := Table{Title: "16 clients, hold 5 ms", Columns: []string{
		"acquires/s", "beside observers", "ratio", "noise", "wait p99 ms", "beside observers", "commands", "beside observers"}}
	for i, kind := range kinds {
		off, on, off2 := seriesIn(without, i), seriesIn(beside, i), seriesIn(again, i)
		ratio := on.times(off, Sample.Rate)
		table.Rows = append(table.Rows, []string{kind.Name,
			exactly("%.0f", Sample.Rate)(off), exactly("%.0f", Sample.Rate)(on), short(ratio), short(off2.times(off, Sample.Rate)),
			shortly(waitQuantile(0.99))(off), shortly(waitQuantile(0.99))(on), shortly(Sample.CommandCost)(off), shortly(Sample.CommandCost)(on)})
		v := Verdict{name: "B10 " + kind.Name + " beside observers"}
		v.atLeast("rate", ratio, observedRateGoal)
		result.Verdicts = append(result.Verdicts, v)
	}
	result.Tables = append(result.Tables, table)
	return result, nil
}

// seriesIn joins the samples of one kind from all rounds.
func seriesIn(rounds [][]Series, kind int) Series {
	joined := Series{Name: rounds[0][kind].Name}
	for _, all := range rounds {
		joined.Rounds = append(joined.Rounds, all[kind].Rounds...)
	}
	return joined
}

// buildLocktop builds the program. remove deletes it.
func buildLocktop(ctx context.Context) (program string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "locktop-bench-")
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, "locktop")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "locktop").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build locktop: %w\n%s", err, out)
		os.RemoveAll(dir)
	}
	return program, func() { os.RemoveAll(dir) }, err
}

// startObservers starts what people run beside their locks, and waits until it has connected. The
// screens need tmux.
func startObservers(ctx context.Context, program, addr string) (stop func() error, err error) {
	url := "redis://" + addr
	var started []*exec.Cmd
	terminal := []string{"-S", program + ".tmux", "-f", os.DevNull}
	stop = func() error {
		var errs []error
		for _, cmd := range started {
			errs = append(errs, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
		}
		return errors.Join(append(errs, exec.Command("tmux", append(terminal, "kill-server")...).Run())...)
	}
	for _, args := range [][]string{
		{"watch", "--json", "--all", "-u", url},
		{"contention", "--for", "1h", "-u", url},
		{"export", "--web.listen-address", "127.0.0.1:0", "-u", url},
	} {
		cmd := exec.CommandContext(ctx, program, args...)
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, stop())
		}
		started = append(started, cmd)
	}
	for range 2 {
		out, err := exec.CommandContext(ctx, "tmux", append(terminal, "new-session", "-d", "-x", "140", "-y", "40", program, "-u", url)...).CombinedOutput()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start a screen in tmux, which must be installed: %w: %s", err, out), stop())
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	return stop, untilSubscribed(ctx, rdb, 4)
}

// untilSubscribed waits until so many clients subscribe to patterns: a watch, an exporter and two screens do.
func untilSubscribed(ctx context.Context, rdb *redis.Client, n int) error {
	for limit := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		clients, err := rdb.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
		if err != nil {
			return err
		}
		found := 0
		for line := range strings.Lines(clients) {
			if strings.Contains(line, " psub=") && !strings.Contains(line, " psub=0 ") {
				found++
			}
		}
		if found >= n {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d of %d observers have subscribed after 1 minute", found, n)
		}
	}
}

// openRedlock opens a Redlock of one node: it registers its waiters there, as that of several nodes does on the
// first one.
func openRedlock(addr string, l Lease) (Process, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	quorum, err := lock.NewQuorum([]*redis.Client{rdb}, lock.QuorumConfig{NodeTimeout: time.Second})
	if err != nil {
		return Process{}, errors.Join(err, rdb.Close())
	}
	open := func(_ *lock.Client, key string, o lock.Options) lock.Locker { return quorum.Redlock(key, o) }
	p, err := openLocktop(open)(addr, l)
	closeClient := p.Close
	p.Close = func() error { return errors.Join(quorum.Close(), closeClient(), rdb.Close()) }
	return p, err
}
