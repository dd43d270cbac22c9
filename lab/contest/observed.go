package contest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
)

// watchedRateGoal is the least rate of a lock beside a watch, to the rate without one.
const watchedRateGoal = 0.95

// observedKinds returns all kinds of locks of package lock.
func observedKinds() []Contender {
	return []Contender{
		{Name: "mutex", Open: openLocktop((*lock.Client).Mutex)},
		{Name: "reentrant", Open: openLocktop((*lock.Client).Reentrant)},
		{Name: "fair", Open: openLocktop((*lock.Client).Fair)},
		{Name: "semaphore, 2 permits", Open: openLocktop(func(c *lock.Client, key string, o lock.Options) (lock.Locker, error) { return c.Semaphore(key, 2, o) })},
		{Name: "rw, every third reads", Open: openLocktopRW},
		{Name: "all, 2 keys", Open: openLocktop(func(c *lock.Client, key string, o lock.Options) (lock.Locker, error) {
			return c.All([]string{key, key + "-too"}, o)
		})},
		{Name: "redlock, 1 node", Open: openRedlock},
	}
}

// observed measures each kind of lock without observers, beside a watch, beside all observers, and
// without them again.
func observed(ctx context.Context, t *Testbed, size Size) (_ Result, err error) {
	result := Result{
		Title: "B10: locks that locktop watches",
		About: "16 clients, each like a process of its own, lock one key, hold it for 5 ms and want it again at once. *watch*: beside `locktop watch`. *all*: beside `locktop watch`, `locktop contention`, `locktop export` and two screens. Everything shares two cores, and each observer reads each change of the lock. A ratio compares neighbouring windows; the noise is that of two windows without observers. Commands and the server's time are per acquire, with those of the observers.",
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
	kinds, beside := observedKinds(), [...][]observer{nil, observers[:1], observers, nil}
	var samples [len(beside)][][]Series // by round
	for range rounds {
		for i, some := range beside {
			stop, err := startObservers(ctx, some, program, t.server.Addr())
			if err != nil {
				return result, err
			}
			all, err := t.runRounds(ctx, kinds, 1, setting)
			if err = errors.Join(err, stop()); err != nil {
				return result, fmt.Errorf("B10: %w", err)
			}
			samples[i] = append(samples[i], all)
		}
	}
	result.Tables = []Table{
		{Title: "acquires per second", Columns: []string{"without", "watch", "all", "watch / without", "all / without", "noise"}},
		{Title: "wait p99 ms, and commands and µs of the server per acquire", Columns: []string{
			"without", "watch", "all", "commands", "watch", "all", "server µs", "watch", "all"}},
	}
	for kind := range kinds {
		var series [len(beside)]Series
		rates, costs := []string{kinds[kind].Name}, []string{kinds[kind].Name}
		for i := range beside {
			series[i] = seriesIn(samples[i], kind)
		}
		without, watched, all := series[0], series[1], series[2]
		for _, s := range series[:3] {
			rates = append(rates, exactly("%.0f", Sample.Rate)(s))
		}
		for _, s := range series[1:] {
			rates = append(rates, short(s.times(without, Sample.Rate)))
		}
		for _, f := range []figure{waitQuantile(0.99), Sample.CommandCost, Sample.ServerCost} {
			costs = append(costs, shortly(f)(without), shortly(f)(watched), shortly(f)(all))
		}
		result.Tables[0].Rows, result.Tables[1].Rows = append(result.Tables[0].Rows, rates), append(result.Tables[1].Rows, costs)
		v := Verdict{Name: "B10 " + kinds[kind].Name + " beside a watch"}
		v.atLeast("rate", watched.times(without, Sample.Rate), watchedRateGoal)
		result.Verdicts = append(result.Verdicts, v)
	}
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
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "locktop").Output()
	if err != nil {
		return "", nil, fmt.Errorf("find the module of locktop: %w", err)
	}
	dir, err := os.MkdirTemp("", "locktop-bench-")
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, "locktop")
	out, err := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(module)), "-o", program, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build locktop: %w\n%s", err, out)
		os.RemoveAll(dir)
	}
	return program, func() { os.RemoveAll(dir) }, err
}

// observer is a command of locktop that runs beside the locks.
type observer struct {
	args   []string
	screen bool // it needs a terminal
}

// observers are what people run beside their locks. Each but contention subscribes to patterns.
var observers = []observer{
	{args: []string{"watch", "--json", "--all"}},
	{args: []string{"contention", "--for", "1h"}},
	{args: []string{"export", "--web.listen-address", "127.0.0.1:0"}},
	{screen: true},
	{screen: true},
}

// startObservers starts observers, and waits until they have connected. Screens need tmux.
func startObservers(ctx context.Context, some []observer, program, addr string) (stop func() error, err error) {
	var started []*exec.Cmd
	terminal := []string{"-S", program + ".tmux", "-f", os.DevNull}
	screens := 0
	stop = func() error {
		var errs []error
		for _, cmd := range started {
			errs = append(errs, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
		}
		if screens > 0 {
			errs = append(errs, exec.Command("tmux", append(terminal, "kill-server")...).Run())
		}
		return errors.Join(errs...)
	}
	subscribed := 0
	for _, o := range some {
		args := append(slices.Clone(o.args), "-u", "redis://"+addr)
		cmd := exec.CommandContext(ctx, program, args...)
		if o.screen {
			cmd = exec.CommandContext(ctx, "tmux", append(append(terminal, "new-session", "-d", "-x", "140", "-y", "40", program), args...)...)
			err = cmd.Run()
			screens++
		} else if err = cmd.Start(); err == nil {
			started = append(started, cmd)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start locktop, its screen in tmux: %w", err), stop())
		}
		if len(o.args) == 0 || o.args[0] != "contention" {
			subscribed++
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := untilSubscribed(ctx, rdb, subscribed); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// untilSubscribed waits until so many clients subscribe to patterns.
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
	open := func(_ *lock.Client, key string, o lock.Options) (lock.Locker, error) { return quorum.Redlock(key, o) }
	p, err := openLocktop(open)(addr, l)
	closeClient := p.Close
	p.Close = func() error { return errors.Join(quorum.Close(), closeClient(), rdb.Close()) }
	return p, err
}
