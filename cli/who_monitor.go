package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// MONITOR runs in a process of its own, in a process group of its own. It ends by its own
// timer, so a stopped parent (Ctrl-Z) does not leave a client behind whose output grows on
// the server. It also ends when its stdin is closed, as at the end of its parent.

// monitorTask is what the parent writes to the child. The child answers with a
// monitorAnswer.
type monitorTask struct {
	Password string        `json:"password"`
	Key      []byte        `json:"key"`
	Tokens   [][]byte      `json:"tokens"`
	DB       int           `json:"db"`
	Window   time.Duration `json:"window_ns"`
}

// query returns the query of a task. Its window is limited here, too.
func (t monitorTask) query() inspect.MonitorQuery {
	q := inspect.MonitorQuery{Key: string(t.Key), DB: t.DB, Window: min(t.Window, maxMonitorTime)}
	for _, token := range t.Tokens {
		q.Tokens = append(q.Tokens, string(token))
	}
	return q
}

func taskOf(q inspect.MonitorQuery, password string) monitorTask {
	t := monitorTask{Password: password, Key: []byte(q.Key), DB: q.DB, Window: q.Window}
	for _, token := range q.Tokens {
		t.Tokens = append(t.Tokens, []byte(token))
	}
	return t
}

type monitorAnswer struct {
	inspect.Sighting
	NotSighted bool   `json:"not_sighted,omitempty"`
	MayNot     bool   `json:"may_not,omitempty"`
	Error      string `json:"error,omitempty"`
}

// monitorCommandName is the name of the hidden command.
const monitorCommandName = "monitor-child"

// executable returns the path of the program. Tests replace it.
var executable = os.Executable

// monitorInChild runs [inspect.Monitor] in a child process.
func (p *program) monitorInChild(ctx context.Context, c *connect.Flags, addr string, q inspect.MonitorQuery) (inspect.Sighting, error) {
	self, err := executable()
	if err != nil {
		return inspect.Sighting{}, fmt.Errorf("run MONITOR in a process of its own: %w", err)
	}
	flags, password, err := c.Child(ctx, addr, q.DB)
	if err != nil {
		return inspect.Sighting{}, err
	}
	task, err := json.Marshal(taskOf(q, password))
	if err != nil {
		return inspect.Sighting{}, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{monitorCommandName}, flags...)...)
	inGroupOfItsOwn(cmd)
	stdin, err := cmd.StdinPipe() // open until the child has ended
	if err != nil {
		return inspect.Sighting{}, err
	}
	defer stdin.Close()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return inspect.Sighting{}, fmt.Errorf("run MONITOR in a process of its own: %w", err)
	}
	_, _ = stdin.Write(append(task, '\n')) // an error means that the child has ended, which is seen below
	ended := cmd.Wait()
	var a monitorAnswer
	if err := json.Unmarshal([]byte(out.String()), &a); err != nil {
		if ctx.Err() != nil {
			return inspect.Sighting{}, ctx.Err()
		}
		return inspect.Sighting{}, fmt.Errorf("the process that runs MONITOR failed: %w: %s", errors.Join(ended, err), strings.TrimSpace(errs.String()))
	}
	switch {
	case a.NotSighted:
		return a.Sighting, inspect.ErrNotSighted
	case a.MayNot:
		return a.Sighting, inspect.ErrMayNotMonitor
	case a.Error != "":
		return a.Sighting, errors.New(a.Error)
	}
	return a.Sighting, nil
}

// monitorCommand is the child of monitorInChild.
func (p *program) monitorCommand() *cobra.Command {
	var c connect.Flags
	cmd := &cobra.Command{
		Use:    monitorCommandName,
		Short:  "Run MONITOR for another locktop",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.monitorAsChild(cmd.Context(), &c)
		},
	}
	cmdFlags(cmd, c.FlagSet())
	return cmd
}

func (p *program) monitorAsChild(ctx context.Context, c *connect.Flags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := json.NewDecoder(p.in)
	var task monitorTask
	if err := lines.Decode(&task); err != nil {
		return usageErrorf("use locktop who KEY --monitor", "this command is for another locktop")
	}
	go func() {
		_, _ = io.Copy(io.Discard, p.in) // until the parent ends
		cancel()
	}()
	const connecting = 10 * time.Second
	time.AfterFunc(task.query().Window+connecting, func() { os.Exit(exitFailure) }) // whatever hangs
	answer := func(a monitorAnswer) error { return json.NewEncoder(p.out).Encode(a) }
	t, err := c.Open(ctx, connect.Prompt{In: strings.NewReader(task.Password + "\n"), Out: io.Discard})
	if err != nil {
		return answer(monitorAnswer{Error: err.Error()})
	}
	defer t.Close()
	seen, err := inspect.Monitor(ctx, t.Client, task.query())
	switch {
	case errors.Is(err, inspect.ErrNotSighted):
		return answer(monitorAnswer{Sighting: seen, NotSighted: true})
	case errors.Is(err, inspect.ErrMayNotMonitor):
		return answer(monitorAnswer{MayNot: true})
	case err != nil:
		return answer(monitorAnswer{Error: err.Error()})
	}
	return answer(monitorAnswer{Sighting: seen})
}

// prove finds the client of a holder with MONITOR.
func (p *program) prove(ctx context.Context, c *connect.Flags, rdb *redis.Client, scanner *inspect.Scanner, force bool, id *identity) error {
	if !force {
		rate, err := scanner.CommandsPerSecond(ctx)
		if err != nil {
			return &exitError{code: exitFailure, err: err, hint: "--force runs it nevertheless"}
		}
		if share := float64(rate) * inspect.MonitorCost.Seconds(); share > maxMonitorShare {
			return &exitError{
				code: exitFailure,
				err:  fmt.Errorf("MONITOR would cost about %.0f%% of a core: the server runs %s commands per second", 100*share, humanize.Count(rate)),
				hint: "the limit is 5%; --force runs it nevertheless",
			}
		}
	}
	q := inspect.MonitorQuery{Key: id.lock.Key, Tokens: []string{id.holder.ID}, DB: id.lock.DB, Window: monitorWindow(id.holder, id.at)}
	line := p.newProgressLine()
	line.show(fmt.Sprintf("MONITOR runs for up to %s", humanize.Duration(q.Window)))
	seen, err := p.monitorInChild(ctx, c, rdb.Options().Addr, q)
	line.clear()
	switch {
	case errors.Is(err, inspect.ErrNotSighted):
		text := fmt.Errorf("within %s, %w", humanize.Duration(q.Window), err)
		if seen.Command != "" {
			text = fmt.Errorf("%w; %s has sent %s with the key and the value of the lock, which is no proof: %s",
				text, render.Text(seen.Addr), strings.ToUpper(render.Text(seen.Command)), seen.Doubt)
		}
		return &exitError{code: exitFailure, err: text, hint: "its holder may not renew it: try again, or when it is released"}
	case errors.Is(err, inspect.ErrMayNotMonitor):
		return &exitError{code: exitFailure, err: err, hint: "it needs +monitor: see docs/operators.md"}
	case err != nil:
		return err
	}
	id.known, id.why = byProof, fmt.Sprintf("MONITOR showed its %s with the key and the token", strings.ToUpper(seen.Command))
	id.clients = []keyspace.Client{{Addr: seen.Addr}}
	if clients, err := scanner.Clients(ctx); err == nil {
		if i := slices.IndexFunc(clients, func(c keyspace.Client) bool { return c.Addr == seen.Addr }); i >= 0 {
			id.clients[0] = clients[i]
		}
	}
	return nil
}

const (
	maxMonitorShare = 0.05             // of a core
	maxMonitorTime  = 15 * time.Second // of one MONITOR
)

// monitorWindow returns how long MONITOR runs at most: a lock with a deadline is renewed
// before it, or gone.
func monitorWindow(h keyspace.Holder, at time.Time) time.Duration {
	if h.Expires.IsZero() {
		return maxMonitorTime
	}
	return min(max(h.Expires.Sub(at), 0)+time.Second, maxMonitorTime)
}
