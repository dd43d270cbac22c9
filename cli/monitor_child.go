package cli

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"locktop/cli/connect"
	"locktop/keyspace/inspect"
)

// MONITOR runs in a process of its own, in a process group of its own. It ends by its own
// timer, so a stopped parent (Ctrl-Z) does not leave a client behind whose output grows on
// the server. It also ends when its stdin is closed, as at the end of its parent.

const (
	maxMonitorShare = 0.05             // of a core
	maxMonitorTime  = time.Minute      // that a user can ask for
	maxMonitorMore  = 10 * time.Second // how much longer MONITOR runs at most
)

// mayMonitor returns an error if MONITOR would cost the server too much.
func mayMonitor(ctx context.Context, scanner *inspect.Scanner) error {
	rate, err := scanner.CommandsPerSecond(ctx)
	if err != nil {
		return &exitError{code: exitFailure, err: err, hint: "--force runs it nevertheless"}
	}
	if float64(rate)*inspect.MonitorCost.Seconds() > maxMonitorShare {
		return monitorFailed(inspect.BusyError{PerSecond: rate})
	}
	return nil
}

// monitorFailed returns the error of a command for an error of MONITOR.
func monitorFailed(err error) error {
	_, busy := errors.AsType[inspect.BusyError](err)
	switch {
	case busy:
		return &exitError{code: exitFailure, err: err, hint: "the limit is 5%; --force runs it nevertheless"}
	case errors.Is(err, inspect.ErrMayNotMonitor):
		return &exitError{code: exitFailure, err: err, hint: "it needs +monitor: see docs/operators.md"}
	}
	return err
}

// monitorTask is what the parent writes to the child. It asks for the holder of a lock, or for
// the commands that have the key of a lock. In the second case more tasks follow, each with more
// Locks. The child answers with one monitorAnswer, or with several, the last of which is Done.
type monitorTask struct {
	inspect.MonitorQuery
	Password     string
	Names        []string // of the commands to pass on; none: the query asks for a holder
	MaxPerSecond int
	Locks        []string // more keys of locks
}

type monitorAnswer struct {
	inspect.Sighting
	Known int               // place in monitorErrors, from 1; 0 = none
	Busy  inspect.BusyError // zero = it is not
	Error string
	Began bool // the server sends its commands from now on
	Ran   *inspect.Command
	Done  bool
}

// monitorErrors are the errors of MONITOR that the parent knows.
var monitorErrors = []error{inspect.ErrNotSighted, inspect.ErrMayNotMonitor}

// answerOf returns the answer for an error of MONITOR.
func answerOf(err error) (a monitorAnswer) {
	if err != nil {
		a.Error = err.Error()
		a.Busy, _ = errors.AsType[inspect.BusyError](err)
		a.Known = slices.IndexFunc(monitorErrors, func(known error) bool { return errors.Is(err, known) }) + 1
	}
	return a
}

// err returns the error of an answer.
func (a monitorAnswer) err() error {
	switch {
	case a.Known > 0:
		return monitorErrors[a.Known-1]
	case a.Busy.PerSecond > 0:
		return a.Busy
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// monitorCommandName is the name of the hidden command.
const monitorCommandName = "monitor-child"

// executable returns the path of the program. Tests replace it.
var executable = os.Executable

// monitorChild is a process that runs MONITOR.
type monitorChild struct {
	cmd   *exec.Cmd
	tasks io.WriteCloser // open until the child has ended
	give  *gob.Encoder   // an error means that the child has ended, which the next answer shows
	out   *gob.Decoder
	errs  strings.Builder
}

// startMonitor starts a process that runs MONITOR on a server.
func startMonitor(ctx context.Context, c *connect.Resolved, addr string, task monitorTask) (*monitorChild, error) {
	self, err := executable()
	if err != nil {
		return nil, fmt.Errorf("run MONITOR in a process of its own: %w", err)
	}
	flags, password, err := c.Child(ctx, addr, task.DB)
	if err != nil {
		return nil, err
	}
	task.Password = password
	m := &monitorChild{cmd: exec.CommandContext(ctx, self, append([]string{monitorCommandName}, flags...)...)}
	inGroupOfItsOwn(m.cmd)
	m.cmd.Stderr = &m.errs
	if m.tasks, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.give, m.out = gob.NewEncoder(m.tasks), gob.NewDecoder(out)
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("run MONITOR in a process of its own: %w", err)
	}
	_ = m.give.Encode(task)
	return m, nil
}

// answer returns the next answer.
func (m *monitorChild) answer(ctx context.Context) (a monitorAnswer, err error) {
	if err = m.out.Decode(&a); err == nil {
		return a, nil
	}
	ended := m.end()
	if ctx.Err() != nil {
		return a, ctx.Err()
	}
	return a, fmt.Errorf("the process that runs MONITOR failed: %w: %s", errors.Join(ended, err), strings.TrimSpace(m.errs.String()))
}

// end ends the process.
func (m *monitorChild) end() error {
	_ = m.tasks.Close()
	return m.cmd.Wait()
}

// monitorInChild runs [inspect.Monitor] in a child process.
func monitorInChild(ctx context.Context, c *connect.Resolved, addr string, q inspect.MonitorQuery) (inspect.Sighting, error) {
	m, err := startMonitor(ctx, c, addr, monitorTask{MonitorQuery: q})
	if err != nil {
		return inspect.Sighting{}, err
	}
	a, err := m.answer(ctx)
	if err != nil {
		return inspect.Sighting{}, err
	}
	_ = m.end() // it has answered
	return a.Sighting, a.err()
}

// lockMonitor runs an [inspect.LockMonitor] in a child process.
type lockMonitor struct {
	child *monitorChild
	began chan struct{} // closed when the server sends its commands, or never will
	known map[string]bool

	mu    sync.Mutex
	ran   []inspect.Command
	err   error
	endAt time.Time // when the child had sent all; zero = it still runs
}

// startLockMonitor starts a lockMonitor for the commands of some names.
func startLockMonitor(ctx context.Context, c *connect.Resolved, addr string, names []string, window time.Duration, maxPerSecond int) (*lockMonitor, error) {
	child, err := startMonitor(ctx, c, addr, monitorTask{MonitorQuery: inspect.MonitorQuery{Window: window}, Names: names, MaxPerSecond: maxPerSecond})
	if err != nil {
		return nil, err
	}
	m := &lockMonitor{child: child, began: make(chan struct{}), known: make(map[string]bool)}
	go m.listen(ctx)
	return m, nil
}

// listen takes the answers of the child.
func (m *lockMonitor) listen(ctx context.Context) {
	begin := sync.OnceFunc(func() { close(m.began) })
	defer begin()
	for {
		a, err := m.child.answer(ctx)
		if err == nil {
			err = a.err()
		}
		m.mu.Lock()
		if m.err = err; a.Ran != nil {
			m.ran = append(m.ran, *a.Ran)
		}
		m.mu.Unlock()
		if a.Began {
			begin()
		}
		if err != nil || a.Done {
			m.mu.Lock()
			m.endAt = time.Now()
			m.mu.Unlock()
			_ = m.child.end()
			return
		}
	}
}

// add adds keys of locks that it does not know.
func (m *lockMonitor) add(keys []string) {
	var more []string
	for _, key := range keys {
		if !m.known[key] {
			m.known[key] = true
			more = append(more, key)
		}
	}
	if len(more) > 0 {
		_ = m.child.give.Encode(monitorTask{Locks: more})
	}
}

// take returns the commands since the last call, up to when they are all, and why the child has
// ended; nil if it has not, or if its window has ended.
func (m *lockMonitor) take() (ran []inspect.Command, until time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ran, m.ran = m.ran, nil
	if until = m.endAt; until.IsZero() {
		until = time.Now()
	}
	return ran, until, m.err
}

// monitorCommand is the child of startMonitor.
func (p *program) monitorCommand() *cobra.Command {
	var c connect.Flags
	return withFlags(&cobra.Command{
		Use:    monitorCommandName,
		Short:  "Run MONITOR for another locktop",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return monitorAsChild(cmd.Context(), &c, p.in, p.out)
		},
	}, c.FlagSet())
}

// monitorAsChild runs MONITOR for the task in in, and answers to to.
func monitorAsChild(ctx context.Context, c *connect.Flags, in io.Reader, to io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tasks := gob.NewDecoder(in)
	var task monitorTask
	if err := tasks.Decode(&task); err != nil {
		return usageErrorf("use locktop who KEY --monitor", "this command is for another locktop")
	}
	locks := inspect.NewLockMonitor(task.Names, task.MaxPerSecond)
	go func() {
		defer cancel()
		for { // until the parent ends
			var more monitorTask
			if tasks.Decode(&more) != nil {
				return
			}
			for _, key := range more.Locks {
				locks.Add(key)
			}
		}
	}()
	const connecting = 10 * time.Second
	task.Window = min(task.Window, maxMonitorTime+maxMonitorMore)           // it is limited here, too
	time.AfterFunc(task.Window+connecting, func() { os.Exit(exitFailure) }) // whatever hangs
	out := gob.NewEncoder(to)
	t, err := new(connect.Session).Open(ctx, c, connect.Prompt{In: strings.NewReader(task.Password + "\n"), Out: io.Discard})
	if err != nil {
		return out.Encode(monitorAnswer{Error: err.Error()})
	}
	defer t.Close()
	if len(task.Names) == 0 {
		seen, err := inspect.Monitor(ctx, t.Client, task.MonitorQuery)
		a := answerOf(err)
		a.Sighting = seen
		return out.Encode(a)
	}
	began := func() error { return out.Encode(monitorAnswer{Began: true}) }
	err = locks.Run(ctx, t.Client, task.Window, began, func(c inspect.Command) error {
		if strings.EqualFold(c.Args[0], "eval") && len(c.Args) > 1 {
			c.Args[1] = "" // the text of the script
		}
		return out.Encode(monitorAnswer{Ran: &c})
	})
	a := answerOf(err)
	a.Done = true
	return out.Encode(a)
}
