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

// meteredConn sends commands to a server and keeps account of them. It is for one
// goroutine.
type meteredConn struct {
	rdb         redis.UniversalClient
	denied      *deniedCommands
	cluster     *Cluster // nil: what is on other nodes is not read
	addr        string
	cost        Cost
	now         time.Time     // the server's clock at the last answer
	serverTime  time.Duration // what the last round trip took the server
	networkTime time.Duration // and what it took besides

	answeredBy map[redis.Cmder]string // of the commands sent last: which other node has answered
}

// pipelined sends the commands that fill queues, and asks for the time before and
// after them: what passes in between is what they take the server. Answers that
// concern a single key (it has another type, it may not be read) stay with their
// commands; anything else that went wrong is returned.
func (c *meteredConn) pipelined(ctx context.Context, what string, fill func(redis.Pipeliner)) error {
	p := c.rdb.Pipeline()
	before := p.Time(ctx)
	fill(p)
	after := p.Time(ctx)
	waited := c.cost.Took
	if err := c.send(ctx, what, p); err != nil {
		return err
	}
	waited = c.cost.Took - waited
	c.now = after.Val()
	c.serverTime = min(max(after.Val().Sub(before.Val()), 0), waited) // clocks may be set
	c.networkTime = waited - c.serverTime
	c.cost.Busy += c.serverTime
	return nil
}

// send executes a pipeline. Its errors are those of [link.ask].
func (c *meteredConn) send(ctx context.Context, what string, p redis.Pipeliner) error {
	cmds, err := c.exec(ctx, p)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) && !isDenied(err) && !isRedirect(err) && cmd.Name() != cmdMemory && cmd.Name() != cmdClient {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// checkRunID returns an error if the server is not the process of this run ID, as far
// as that is known. Connections come from a pool that replaces broken ones in
// silence, so a restart need not show otherwise.
func (c *meteredConn) checkRunID(ctx context.Context, runID string) error {
	if runID == "" {
		return nil
	}
	var info *redis.StringCmd
	err := c.pipelined(ctx, "ask who the server is", func(p redis.Pipeliner) { info = p.Info(ctx, "server") })
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
func (c *meteredConn) exec(ctx context.Context, p redis.Pipeliner) ([]redis.Cmder, error) {
	begin := time.Now()
	cmds, err := p.Exec(ctx)
	c.cost.Took += time.Since(begin)
	c.cost.Commands += int64(len(cmds))
	if err == nil {
		return cmds, nil
	}
	if !haveOutcomes(cmds) {
		return nil, err
	}
	c.followRedirects(ctx, cmds)
	for _, cmd := range cmds {
		if !isCommandDenied(cmd.Err()) {
			continue
		}
		c.denied.add(commandName(cmd), cmd.Err())
		if clock, ok := cmd.(*redis.TimeCmd); ok {
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

// haveOutcomes reports whether the commands of a pipeline that failed have got as far
// as having outcomes of their own. go-redis leaves them without when it is turned
// away at the door: a password that no longer counts, a user switched off.
func haveOutcomes(cmds []redis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil })
}

// takeCost returns what was spent since it was asked last.
func (c *meteredConn) takeCost() Cost {
	cost := c.cost
	c.cost = Cost{}
	return cost
}

// deniedCommands collects what a server does not let this user do, or cannot do itself.
// It is safe for concurrent use; a nil one forgets.
type deniedCommands struct {
	mu       sync.Mutex
	commands []string        // in order
	unknown  map[string]bool // those that the server does not know
}

// add takes in a command that was refused.
func (d *deniedCommands) add(command string, why error) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if isUnknownCommand(why) {
		addTo(&d.unknown, command)
	}
	if i, known := slices.BinarySearch(d.commands, command); !known {
		d.commands = slices.Insert(d.commands, i, command)
	}
}

// has reports whether a command was refused.
func (d *deniedCommands) has(command string) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.commands, command)
}

// optionalCommands are the commands that others stand in for: where they are refused,
// more is read, or a deadline less exactly, and no lock is missed.
var optionalCommands = [...]string{cmdClient, "hrandfield", "lindex", cmdMemory, "pexpiretime", "srandmember", "zrandmember"}

// cmdMemory is the command that tells how big a value is. Other servers than Redis
// may not know it in these words; they are none the worse.
const cmdMemory = "memory"

// missing lists the commands without which something is missed: those that this
// user may not send, and those that the server does not know.
func (d *deniedCommands) missing() (forbidden, unknown []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.commands {
		switch {
		case slices.Contains(optionalCommands[:], c):
		case d.unknown[c]:
			unknown = append(unknown, strings.ToUpper(c))
		default:
			forbidden = append(forbidden, strings.ToUpper(c))
		}
	}
	return forbidden, unknown
}
