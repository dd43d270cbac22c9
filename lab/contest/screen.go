package contest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"locktop/internal/humanize"
)

// Goals of the screen.
const (
	worstGoal    = 5.0  // seconds until the worst of 200,000 locks is on the screen
	allGoal      = 10.0 // seconds until all of them are counted
	manyRSSGoal  = 480  // MB with 200,000 locks
	idleRSSGoal  = 45   // MB with 5,000 locks
	idleCoreGoal = 2.5  // % of a core with 5,000 locks that do not change
)

// screen measures the screen of a server with many locks. One of them, "stuck", has no TTL.
func screen(ctx context.Context, t *Testbed, size Size) (Result, error) {
	result := Result{
		Title: "B11: the screen of a large server",
		About: "`locktop` in a terminal of 140×40, at the default budget. One lock among many, that of no TTL, is stuck. The times are from the start of the program until the screen shows the stuck lock, and until it has counted all locks; they are read from the terminal every 50 ms. Then nothing changes, and the program is idle.",
	}
	counts, idle := []int{5_000, 200_000}, 30*time.Second
	if size == Quick {
		counts, idle = counts[:1], 5*time.Second
	}
	program, remove, err := buildLocktop(ctx)
	if err != nil {
		return result, err
	}
	defer remove()
	table := Table{Title: "one screen", Columns: []string{"the stuck lock, s", "all locks, s", "idle, % of a core", "memory (RSS), MB"}}
	for _, locks := range counts {
		f, err := t.look(ctx, program, locks, idle)
		if err != nil {
			return result, fmt.Errorf("B11 with %d locks: %w", locks, err)
		}
		table.Rows = append(table.Rows, []string{humanize.Count(locks) + " locks", short(f.worst), short(f.all), short(f.core), short(f.rss)})
		v := Verdict{Name: fmt.Sprintf("B11 locks=%d", locks)}
		v.atMost("worst-s", f.worst, worstGoal)
		v.atMost("all-s", f.all, allGoal)
		if locks == counts[0] {
			v.atMost("idle-%", f.core, idleCoreGoal)
			v.atMost("rss-MB", f.rss, idleRSSGoal)
		} else {
			v.atMost("rss-MB", f.rss, manyRSSGoal)
		}
		result.Verdicts = append(result.Verdicts, v)
	}
	result.Tables = []Table{table}
	return result, nil
}

// screenFigures are the times in seconds, the memory in MB, and the idle share of a core in percent.
type screenFigures struct{ worst, all, core, rss float64 }

// look fills the server with locks and starts a screen in a terminal.
func (t *Testbed) look(ctx context.Context, program string, locks int, idle time.Duration) (f screenFigures, err error) {
	if err := t.clear(ctx); err != nil {
		return f, err
	}
	p := t.rdb.Pipeline()
	for i := range locks - 1 {
		p.Set(ctx, fmt.Sprintf("lock:order:%d", i), uuid.NewString(), time.Hour)
	}
	p.Set(ctx, "lock:stuck", uuid.NewString(), 0)
	if _, err := p.Exec(ctx); err != nil {
		return f, fmt.Errorf("fill the server: %w", err)
	}
	tmux := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", program + ".tmux", "-f", os.DevNull}, args...)...).Output()
		return string(out), err
	}
	begin := time.Now()
	pid, err := tmux("new-session", "-d", "-P", "-F", "#{pane_pid}", "-x", "140", "-y", "40", program, "-u", "redis://"+t.server.Addr())
	if err != nil {
		return f, fmt.Errorf("start locktop in tmux: %w", err)
	}
	defer func() {
		_, killed := tmux("kill-server")
		err = errors.Join(err, killed)
	}()
	for f.worst == 0 || f.all == 0 {
		text, err := tmux("capture-pane", "-p")
		if err != nil {
			return f, fmt.Errorf("read the screen: %w", err)
		}
		since := time.Since(begin).Seconds()
		if f.worst == 0 && strings.Contains(text, "lock:stuck") {
			f.worst = since
		}
		if f.all == 0 && strings.Contains(text, humanize.Count(locks)+" locks") {
			f.all = since
		}
		if since > 120 {
			return f, fmt.Errorf("the screen does not show all locks after 2 minutes:\n%s", text)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return f, err
		}
	}
	process := "/proc/" + strings.TrimSpace(pid)
	if err := pause(ctx, 10*time.Second); err != nil { // what the first pass left to do is over
		return f, err
	}
	before, err := ticks(process)
	if err != nil {
		return f, err
	}
	if err := pause(ctx, idle); err != nil {
		return f, err
	}
	after, err := ticks(process)
	f.core = float64(after-before) / idle.Seconds() // a tick is 10 ms: 1 % of a second
	if err == nil {
		f.rss, err = residentMB(process)
	}
	return f, err
}

// ticks returns the processor time of a process in 10 ms, from its directory in /proc.
func ticks(process string) (int, error) {
	stat, err := os.ReadFile(process + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read the processor time (needs Linux): %w", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	return user + system, errors.Join(errUser, errSystem)
}

// residentMB returns the resident memory of a process in MB.
func residentMB(process string) (float64, error) {
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	return float64(kb) / 1024, err
}
