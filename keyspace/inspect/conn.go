package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// Client is a [redis.Client] or a [redis.ClusterClient]. A package that mentions one of their
// types compiles all of their methods again, which takes more than a second.
type Client interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	PoolStats() *redis.PoolStats
	Close() error
}

// optionsOf returns the options of a client of one server, for a connection of its own.
func optionsOf(rdb Client) (*redis.Options, error) {
	if c, ok := rdb.(interface{ Options() *redis.Options }); ok {
		return c.Options(), nil
	}
	return nil, errors.New("the client does not allow a separate connection")
}

// meteredConn sends commands to a server and measures their cost. It is for one
// goroutine.
type meteredConn struct {
	scanner     *Scanner // whose server this is
	cost        keyspace.Cost
	now         time.Time     // the server's clock at the last reply
	serverTime  time.Duration // time of the last round trip on the server
	networkTime time.Duration // the rest of the time of the last round trip

	listsAll bool // CLIENT LIST takes no IDs: Redis 6.0

	aboard func(ctx context.Context, p redis.Pipeliner) (answered func(by map[redis.Cmder]string)) // adds commands to each pipeline; nil: it adds none

	answeredBy map[redis.Cmder]string // by command of the last pipeline: the other node that answered
}

// pipelined sends the commands that fill queues, between two TIME commands. The
// difference of the two times is the cost of the commands on the server. Replies that
// concern a single key (wrong type, no permission) stay with their commands; any other
// error is returned.
func (c *meteredConn) pipelined(ctx context.Context, what string, fill func(redis.Pipeliner)) error {
	p := c.scanner.rdb.Pipeline()
	before := p.Time(ctx)
	fill(p)
	answered := func(map[redis.Cmder]string) {}
	if c.aboard != nil {
		answered = c.aboard(ctx, p)
	}
	after := p.Time(ctx)
	waited := c.cost.WaitTime
	if err := c.send(ctx, what, p); err != nil {
		return err
	}
	waited = c.cost.WaitTime - waited
	c.now = after.Val()
	c.serverTime = min(max(after.Val().Sub(before.Val()), 0), waited) // a clock may be set back
	c.networkTime = waited - c.serverTime
	c.cost.ServerTime += c.serverTime
	c.scanner.opts.Meter.busy(c.serverTime)
	answered(c.answeredBy)
	return nil
}

// inBatches sends what queue adds for each of all, batchSize of them per round trip, and passes each with its
// replies to use.
func inBatches[T, R any](ctx context.Context, c *meteredConn, what string, all []T, queue func(redis.Pipeliner, T) R, use func(T, R)) error {
	for some := range slices.Chunk(all, batchSize) {
		replies := make([]R, len(some))
		err := c.pipelined(ctx, what, func(p redis.Pipeliner) {
			for i, one := range some {
				replies[i] = queue(p, one)
			}
		})
		if err != nil {
			return err
		}
		for i, one := range some {
			use(one, replies[i])
		}
	}
	return nil
}

// send executes a pipeline. Its errors are those of [meteredConn.pipelined].
func (c *meteredConn) send(ctx context.Context, what string, p redis.Pipeliner) error {
	cmds, err := c.exec(ctx, p)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) && !isDenied(err) && !isRedirect(err) && !slices.Contains(lenientCommands[:], cmd.Name()) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// dials returns how many connections the pools have dialed because they had no idle one.
func (c *meteredConn) dials() uint32 {
	s := c.scanner.rdb.PoolStats()
	if s.PipelineStats == nil {
		return s.Misses
	}
	return s.Misses + s.PipelineStats.Misses
}

// checkRunID returns errRestarted if the server has another run ID, as far as it
// reports one. The pool replaces broken connections without an error, so a restart may
// not show otherwise.
func (c *meteredConn) checkRunID(ctx context.Context, runID string) error {
	if runID == "" {
		return nil
	}
	var info *redis.StringCmd
	err := c.pipelined(ctx, "identify the server", func(p redis.Pipeliner) { info = p.Info(ctx, "server") })
	if err != nil {
		return err
	}
	var now keyspace.Server
	describeServer(&now, info.Val())
	if now.RunID != "" && now.RunID != runID {
		return errRestarted
	}
	return nil
}

// exec executes a pipeline and records its cost. Each command has its own result,
// unless exec returns an error. If the user may not send TIME, the local time is used.
func (c *meteredConn) exec(ctx context.Context, p redis.Pipeliner) ([]redis.Cmder, error) {
	begin := time.Now()
	cmds, err := p.Exec(ctx)
	c.cost.WaitTime += time.Since(begin)
	c.cost.Commands += int64(len(cmds))
	c.scanner.opts.Meter.sent(cmds)
	_, answered := errors.AsType[redis.Error](err)
	c.scanner.answer.note(begin, answered || err == nil)
	if err == nil {
		return cmds, nil
	}
	if !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil, err // the connection is refused: a changed password, a disabled user
	}
	c.followRedirects(ctx, cmds)
	for _, cmd := range cmds {
		if !isCommandDenied(cmd.Err()) {
			continue
		}
		c.scanner.denied.record(commandName(cmd), cmd.Err())
		if clock, ok := cmd.(*redis.TimeCmd); ok {
			clock.SetVal(time.Now())
			clock.SetErr(nil)
		}
	}
	return cmds, nil
}

// commandName returns the name that an ACL uses for a command. Each subcommand of
// CLUSTER has its own permission.
func commandName(c redis.Cmder) string {
	if c.Name() == "cluster" {
		return c.FullName()
	}
	return c.Name()
}

// takeCost returns the cost since the last call.
func (c *meteredConn) takeCost() keyspace.Cost {
	cost := c.cost
	c.cost = keyspace.Cost{}
	return cost
}

// lastAnswer is when a server answered last, on the local clock. It is safe for
// concurrent use.
type lastAnswer struct {
	mu     sync.Mutex
	at     time.Time
	waited time.Duration // of the last request, if it was not answered
}

// note notes the end of a request that was sent at begin.
func (l *lastAnswer) note(begin time.Time, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		l.at, l.waited = time.Now(), 0
	} else {
		l.waited = time.Since(begin)
	}
}

// last returns when the server answered last, zero if it never did, and how long it did not answer
// the last request.
func (l *lastAnswer) last() (at time.Time, silent time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.waited
}

// deniedCommands collects the commands that the user may not send, or that the server
// does not have. It is safe for concurrent use.
type deniedCommands struct {
	mu       sync.Mutex
	commands map[string]bool // true = the server does not have the command
}

// record records a denied command.
func (d *deniedCommands) record(command string, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commands[command] = isUnknownCommand(why)
}

// count returns the number of denied commands.
func (d *deniedCommands) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.commands)
}

// has reports whether a command was denied.
func (d *deniedCommands) has(command string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, denied := d.commands[command]
	return denied
}

// optionalCommands have a substitute: without them more data is read, or deadlines are
// less exact, but no lock is missed. Or they read a key: then the unread keys tell what is missed.
var optionalCommands = [...]string{cmdClient, "cluster info", "exists", "hrandfield", "lindex", cmdMemory, cmdObject, "pexpiretime", "srandmember", "zrandmember",
	"get", "getrange", "hgetall", "hlen", "hscan", "llen", "lrange", "pttl", "scard", "sscan", "strlen", "xlen", "xrange", "zcard", "zrange"}

// lenientCommands may fail in any way: each has its own result.
var lenientCommands = [...]string{cmdClient, cmdMemory, cmdObject, "exists", "info"}

// cmdMemory reports the size of a value. Servers other than Redis may not have it; then
// sizes are not checked.
const cmdMemory = "memory"

// problems names the denied commands without a substitute: those that the user may not
// send and those that the server does not have.
func (d *deniedCommands) problems() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, unknown := range []bool{false, true} {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(d.commands)), func(c string) bool {
			return slices.Contains(optionalCommands[:], c) || d.commands[c] != unknown
		})
		if len(names) > 0 {
			all = append(all, deniedBecause(unknown, strings.Join(names, ", ")))
		}
	}
	return all
}

// deniedBecause says in one clause that commands are denied.
func deniedBecause(unknown bool, names string) string {
	if unknown {
		return "the server does not have " + strings.ToUpper(names)
	}
	return "this user may not run " + strings.ToUpper(names)
}

// isWrongType reports whether a key has another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// isDenied reports whether a server does not know a command, or the user may not send
// it, at all or for this key.
func isDenied(err error) bool { return isCommandDenied(err) || isKeyDenied(err) }

// isCommandDenied reports whether a server does not know a command, or the user may not
// send it at all.
func isCommandDenied(err error) bool {
	return err != nil && redis.HasErrorPrefix(err, "NOPERM") && !isKeyDenied(err) || isUnknownCommand(err)
}

// isUnknownCommand reports whether a server does not know a command: it is too old, or
// the command is renamed.
func isUnknownCommand(err error) bool { return redis.HasErrorPrefix(err, "unknown command") }

// isKeyDenied reports whether this user may not read a key. Names of users and
// commands, which are part of other messages, contain no spaces.
func isKeyDenied(err error) bool {
	if err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "no permissions to access one of the keys") || // Redis 6.0 and 7.0
		strings.Contains(text, "No permissions to access a key") // Redis 7.2 and later, Valkey
}

// isTransient reports whether a server is loading, busy, or failing over.
func isTransient(err error) bool {
	prefixes := []string{"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// errRestarted means that the cursors are invalid and that the reasons of ended holds
// are unknown.
var errRestarted = errors.New("the server was restarted during the read; try again")

// hasEnded reports whether ctx has ended or its deadline has passed, which a connection
// may notice first.
func hasEnded(ctx context.Context) bool {
	deadline, some := ctx.Deadline()
	return ctx.Err() != nil || some && !time.Now().Before(deadline)
}

// isConnLost reports whether the connection or the server was lost.
func isConnLost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, errRestarted) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// dialFunc is the type of a dialer of go-redis.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// closingDialer returns a dialer whose connections close when alive ends. PubSub.Close is
// too late for a server that hangs: it waits for a connection attempt that nothing cancels.
func closingDialer(alive context.Context, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			context.AfterFunc(alive, func() { _ = conn.Close() })
		}
		return conn, err
	}
}
