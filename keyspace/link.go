package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// link sends commands to a server and keeps account of them. It is for one
// goroutine.
type link struct {
	rdb     redis.UniversalClient
	refused *refusals
	cluster *Cluster // nil: what is on other nodes is not read
	addr    string
	cost    Cost
	now     time.Time     // the server's clock at the last answer
	took    time.Duration // what the last round trip took the server
	way     time.Duration // and what it took besides

	elsewhere map[redis.Cmder]string // of the commands sent last: which other node has answered
}

// ask sends the commands that fill queues, and asks for the time before and
// after them: what passes in between is what they take the server. Answers that
// concern a single key (it has another type, it may not be read) stay with their
// commands; anything else that went wrong is returned.
func (l *link) ask(ctx context.Context, what string, fill func(redis.Pipeliner)) error {
	p := l.rdb.Pipeline()
	before := p.Time(ctx)
	fill(p)
	after := p.Time(ctx)
	waited := l.cost.Took
	if err := l.send(ctx, what, p); err != nil {
		return err
	}
	waited = l.cost.Took - waited
	l.now = after.Val()
	l.took = min(max(after.Val().Sub(before.Val()), 0), waited) // clocks may be set
	l.way = waited - l.took
	l.cost.Busy += l.took
	return nil
}

// send executes a pipeline. Its errors are those of [link.ask].
func (l *link) send(ctx context.Context, what string, p redis.Pipeliner) error {
	cmds, err := l.exec(ctx, p)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, c := range cmds {
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) && !wrongType(err) && !refused(err) && !redirected(err) && c.Name() != weighing && c.Name() != rolling {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// expect returns an error if the server is not the process of this run ID, as far
// as that is known. Connections come from a pool that replaces broken ones in
// silence, so a restart need not show otherwise.
func (l *link) expect(ctx context.Context, runID string) error {
	if runID == "" {
		return nil
	}
	var info *redis.StringCmd
	err := l.ask(ctx, "ask who the server is", func(p redis.Pipeliner) { info = p.Info(ctx, "server") })
	if err != nil {
		return err
	}
	var now Server
	now.describe(info.Val())
	if now.RunID != "" && now.RunID != runID {
		return errRestarted
	}
	return nil
}

// exec executes a pipeline and books what it cost. Each command has an outcome of
// its own, unless there is an error. Who may not ask the server for its time gets
// ours.
func (l *link) exec(ctx context.Context, p redis.Pipeliner) ([]redis.Cmder, error) {
	begin := time.Now()
	cmds, err := p.Exec(ctx)
	l.cost.Took += time.Since(begin)
	l.cost.Commands += int64(len(cmds))
	if err == nil {
		return cmds, nil
	}
	if !answered(cmds) {
		return nil, err
	}
	l.follow(ctx, cmds)
	for _, c := range cmds {
		if !forbidden(c.Err()) {
			continue
		}
		l.refused.note(commandName(c), c.Err())
		if clock, ok := c.(*redis.TimeCmd); ok {
			clock.SetVal(time.Now())
			clock.SetErr(nil)
		}
	}
	return cmds, nil
}

// commandName is a command as rights name it. Of CLUSTER each subcommand has a right
// of its own.
func commandName(c redis.Cmder) string {
	if c.Name() == "cluster" {
		return c.FullName()
	}
	return c.Name()
}

// answered reports whether the commands of a pipeline that failed have got as far
// as having outcomes of their own. go-redis leaves them without when it is turned
// away at the door: a password that no longer counts, a user switched off.
func answered(cmds []redis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil })
}

// reckon returns what was spent since it was asked last.
func (l *link) reckon() Cost {
	c := l.cost
	l.cost = Cost{}
	return c
}

// refusals collects what a server does not let this user do, or cannot do itself.
// It is safe for concurrent use; a nil one forgets.
type refusals struct {
	mu       sync.Mutex
	commands []string        // in order
	unknown  map[string]bool // those that the server does not know
}

// note takes in a command that was refused.
func (r *refusals) note(command string, why error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if unknown(why) {
		mark(&r.unknown, command)
	}
	if i, known := slices.BinarySearch(r.commands, command); !known {
		r.commands = slices.Insert(r.commands, i, command)
	}
}

// has reports whether a command was refused.
func (r *refusals) has(command string) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.commands, command)
}

// dispensable are the commands that others stand in for: where they are refused,
// more is read, or a deadline less exactly, and no lock is missed.
var dispensable = [...]string{rolling, "hrandfield", "lindex", weighing, "pexpiretime", "srandmember", "zrandmember"}

// weighing is the command that tells how big a value is. Other servers than Redis
// may not know it in these words; they are none the worse.
const weighing = "memory"

// missing lists the commands without which something is missed: those that this
// user may not send, and those that the server does not know.
func (r *refusals) missing() (forbidden, unknown []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.commands {
		switch {
		case slices.Contains(dispensable[:], c):
		case r.unknown[c]:
			unknown = append(unknown, strings.ToUpper(c))
		default:
			forbidden = append(forbidden, strings.ToUpper(c))
		}
	}
	return forbidden, unknown
}
