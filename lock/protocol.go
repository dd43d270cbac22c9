package lock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock/internal/transport"
)

// protocol is how one kind of lock stores one lock in Redis: the requests that
// acquire, extend and release it. The methods send their request before they return,
// in the order of the calls. The [future] waits for the reply.
//
// A token stands for one hold. Reentrant kinds count its entries. A request carries
// the new count, not a difference, so that it may be lost or repeated without harm.
type protocol interface {
	// acquire asks for the lock, or for another entry of a token that holds it. If the
	// token now holds the lock, the reply is an integer: the fencing token, 0 = none; or
	// OK, which stands for 0. Otherwise it is {token of a holder, its PTTL in ms}.
	acquire(ctx context.Context, token string, ttl time.Duration, entries int) future
	// extend sets the TTL, over the transport of the lock or, for [Options.Replicas], another
	// one. The reply is 1, or 0 if the token does not hold the lock.
	extend(ctx context.Context, t transport.Transport, token string, ttl time.Duration) future
	// release gives back all entries but left. The reply is 1 if the lock is free, the
	// next holder's token if it was handed over, 0 if entries are left, and nil if the
	// token does not hold the lock.
	release(ctx context.Context, token string, left int) future
	// channel returns the channel on which releases are published.
	channel() string
	// lockKey returns the name of the lock.
	lockKey() string
}

// scripts are the Lua scripts of a kind of lock with one key.
type scripts struct {
	acquire, extend, release, peek *script

	counted bool // acquire and release take the number of entries
	isValue bool // the token is the value of the key
}

// scriptProtocol stores the lock in one key, as its scripts do.
type scriptProtocol struct {
	scripts     *scripts
	core        *core
	transport   transport.Transport
	keys        []string // the lock; its fence, if it has one
	freeChannel string
	broadcast   bool          // the lock can have no companion keys: a release wakes all processes
	grant       time.Duration // a waiter of the own process gets the lock for this TTL; 0 = it must claim it

	acquireArgs, releaseArgs []any // of a kind with more arguments, behind the first ones
}

func newScriptProtocol(s *scripts, c *core, key string, fence bool) *scriptProtocol {
	return &scriptProtocol{scripts: s, core: c, transport: c.transport, keys: keysOf(key, fence), freeChannel: companionKey(key, "free"),
		broadcast: c.transport.Clustered() && !canHaveCompanions(key)}
}

// keysOf returns the key of a lock and, if it is fenced, the key of its counter.
func keysOf(key string, fence bool) []string {
	if fence {
		return []string{key, companionKey(key, "fence")}
	}
	return []string{key}
}

// companionKey returns the name of a further key of a lock, in the same cluster slot:
// "key::part" if key has a {tag}, else "{key}:part". The names are unique, also for
// the keys "a" and "{a}": only in the first form a colon stands before ":part".
func companionKey(key, part string) string {
	if hasTag(key) {
		return key + "::" + part
	}
	return "{" + key + "}:" + part
}

// canHaveCompanions reports whether companionKey returns names in the slot of the
// lock. A key without a tag must work as a tag itself.
func canHaveCompanions(key string) bool {
	return hasTag(key) || key != "" && !strings.Contains(key, "}")
}

// hasTag reports whether a cluster hashes only a part of key.
func hasTag(key string) bool { return slotTag(key) != key }

// slotTag returns the part of a key that decides in which slot a cluster stores it: the
// part between the first "{" and the next "}", unless it is empty, else the whole key.
func slotTag(key string) string {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// checkCompanions returns an error if a cluster cannot store further keys in key's
// slot.
func (c *core) checkCompanions(key string) error {
	if c.transport.Clustered() && !canHaveCompanions(key) {
		return fmt.Errorf("%w: on a cluster, the key %q has a closing brace but no {tag}, so this lock cannot store its other keys in the same slot", ErrArgument, key)
	}
	return nil
}

func (p *scriptProtocol) acquire(ctx context.Context, token string, ttl time.Duration, entries int) future {
	if p.scripts.counted {
		return p.scripts.acquire.send(ctx, p.transport, p.keys, token, ttl.Milliseconds(), entries)
	}
	return p.scripts.acquire.send(ctx, p.transport, p.keys, append([]any{token, ttl.Milliseconds()}, p.acquireArgs...)...)
}

func (p *scriptProtocol) extend(ctx context.Context, t transport.Transport, token string, ttl time.Duration) future {
	if p.scripts.isValue && !p.core.noIfEqual.Load() {
		argv, otherwise := p.core.extendIfEqual(p.keys[0], token, ttl)
		c := sendPlain(ctx, t, argv...)
		c.fallback = otherwise
		return ifEqual{c}
	}
	return p.scripts.extend.send(ctx, t, p.keys[:1], token, ttl.Milliseconds())
}

func (p *scriptProtocol) release(ctx context.Context, token string, left int) future {
	g := grant{time.Now(), p.grant}
	return &handover{p.sendRelease(ctx, token, left, ""), p, g}
}

// sendRelease sends the release of a token. If the token does not hold the lock,
// waiting is removed from the waiters; empty = none.
func (p *scriptProtocol) sendRelease(ctx context.Context, token string, left int, waiting string) *call {
	args := make([]any, 0, 6)
	args = append(args, token)
	if p.scripts.counted {
		args = append(args, left)
	}
	args = append(args, p.releaseArgs...)
	return p.scripts.release.send(ctx, p.transport, p.keys[:1], p.appendWakeArgs(args, waiting)...)
}

// appendWakeArgs appends the arguments of a script that wakes a waiter: see
// waiters_release.lua. waiting is removed from the waiters; empty = none.
func (p *scriptProtocol) appendWakeArgs(args []any, waiting string) []any {
	args = append(args, p.freeChannel)
	switch {
	case p.broadcast:
		return args
	case p.grant > 0:
		return append(args, p.core.process, p.publishCounts(), waiting, p.grant.Milliseconds())
	case waiting != "":
		return append(args, p.core.process, p.publishCounts(), waiting)
	case p.transport.Clustered():
		return append(args, p.core.process, p.publishCounts())
	default:
		return append(args, p.core.process)
	}
}

// publishCounts returns 1 if PUBLISH returns the number of subscribers; 0 on a cluster,
// where it counts one node only.
func (p *scriptProtocol) publishCounts() int {
	if p.transport.Clustered() {
		return 0
	}
	return 1
}

// processChannel returns the channel on which waiters of this process receive messages; empty
// if a release wakes all processes.
func (p *scriptProtocol) processChannel() string {
	if p.broadcast {
		return ""
	}
	return p.freeChannel + ":" + processOf(p.core.id)
}

func (p *scriptProtocol) channel() string { return p.freeChannel }

func (p *scriptProtocol) lockKey() string { return p.keys[0] }

func (p *scriptProtocol) peek(ctx context.Context) future {
	return p.scripts.peek.send(ctx, p.transport, p.keys[:1])
}

// peeker is a protocol that can look up the holder with one request. The reply is
// {token of a holder, its PTTL in ms}; nil if the lock is free.
type peeker interface {
	peek(ctx context.Context) future
}

// future is the reply to a request in progress.
type future interface {
	// wait returns the reply. If it returns an error because ctx or the connection has
	// ended, the server may still execute the request.
	wait(ctx context.Context) (reply any, err error)
}

// errUnexpectedReply means that a reply is not one that the command has.
var errUnexpectedReply = errors.New("unexpected reply from the server")

// parseAcquire parses the reply to an acquire. It returns the holder if the lock is
// held, else nil and the fencing token. Any other reply is an error.
func parseAcquire(key string, reply any) (held *HeldError, fence int64, err error) {
	switch reply := reply.(type) {
	case int64:
		return nil, reply, nil
	case string: // to SET
		if reply == "OK" {
			return nil, 0, nil
		}
	case []any:
		if len(reply) < 2 {
			break
		}
		token, _ := reply[0].(string)
		ttl, _ := reply[1].(int64)
		return &HeldError{Key: key, Token: token, TTL: time.Duration(ttl) * time.Millisecond}, 0, nil
	}
	return nil, 0, errUnexpectedReply
}

// script is a Lua script, called by its SHA-1 hash.
type script struct{ source, sha string }

// newScript returns the script that consists of these Lua files, named without ".lua".
func newScript(files ...string) *script { return hashed(lua(files...)) }

func hashed(source string) *script { return &script{source, redis.NewScript(source).Hash()} }

//go:embed *.lua
var luaFiles embed.FS

// lua returns the texts of Lua files, one after the other.
func lua(files ...string) string {
	var all strings.Builder
	for _, file := range files {
		text, err := luaFiles.ReadFile(file + ".lua")
		if err != nil {
			panic(err) // before main: the file is not there
		}
		all.Write(text)
	}
	return all.String()
}

// call is a command in progress, either a script or a plain command.
type call struct {
	transport transport.Transport
	script    *script // nil = a plain command
	cmd       *transport.Command
	reply     transport.Reply
	first     transport.Command // spares an allocation: most calls send one command
	fallback  fallback
}

// fallback is a second call, for a server that did not execute the first one.
type fallback struct {
	after func(error) bool           // reports whether the call must be sent after this error; nil = there is no fallback
	call  func() (*script, []string) // the script and its command
}

// afterNil reports whether err is a nil reply.
func afterNil(err error) bool { return errors.Is(err, redis.Nil) }

// inlineCall is a call with space for the usual number of arguments.
type inlineCall struct {
	call
	args [6]string
}

// send sends a call of the script. Arguments are strings and integers.
func (s *script) send(ctx context.Context, t transport.Transport, keys []string, args ...any) *call {
	c := &inlineCall{call: call{transport: t, script: s}}
	c.send(ctx, &c.first, appendArgs(s.argv(c.args[:0], keys), args))
	return &c.call
}

// argv appends the beginning of a call to args.
func (s *script) argv(args, keys []string) []string {
	args = append(args, "evalsha", s.sha, strconv.Itoa(len(keys)))
	return append(args, keys...)
}

// sendPlain sends a command that is not a script.
func sendPlain(ctx context.Context, t transport.Transport, args ...string) *call {
	c := &inlineCall{call: call{transport: t}}
	c.send(ctx, &c.first, append(c.args[:0], args...))
	return &c.call
}

// appendArgs appends args as strings.
func appendArgs(argv []string, args []any) []string {
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			argv = append(argv, arg)
		case int64:
			argv = append(argv, strconv.FormatInt(arg, 10))
		default:
			argv = append(argv, strconv.Itoa(arg.(int)))
		}
	}
	return argv
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (c *call) send(ctx context.Context, cmd *transport.Command, args []string) {
	cmd.Args = args
	c.cmd, c.reply = cmd, c.transport.Send(ctx, cmd)
}

// resend sends the script again.
func (c *call) resend(ctx context.Context, verb, script string) {
	args := slices.Clone(c.cmd.Args)
	args[0], args[1] = verb, script
	c.send(ctx, new(transport.Command), args)
}

// resendIfNeeded waits for the reply. If the server does not know the script (after a start,
// a failover or SCRIPT FLUSH), it sends the call again with the source. It sends the fallback
// if the reply asks for it. It does not wait for the second reply.
func (c *call) resendIfNeeded(ctx context.Context) error {
	err := c.reply.Wait(ctx)
	if err == nil {
		return nil
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") && c.script != nil {
		c.resend(ctx, "eval", c.script.source)
		return nil
	}
	if c.fallback.after != nil && c.fallback.after(err) {
		script, argv := c.fallback.call()
		c.script, c.fallback = script, fallback{}
		c.send(ctx, new(transport.Command), argv)
		return nil
	}
	if errors.Is(sentinelOf(err), errReadOnly) {
		c.transport.DropStale()
	}
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "TRYAGAIN") && c.script != nil {
		return nil
	}
	return err
}

// waitLast waits for the reply to the command that was sent last.
func (c *call) waitLast(ctx context.Context) { _ = c.reply.Wait(ctx) }

// writtenAt returns when the answered command was written; zero = not known. Call it
// after wait.
func (c *call) writtenAt() time.Time { return c.cmd.Written }

// sinceWritten returns the time at which a request was written. This can be later than
// sent, because the connection was dialed first. If it is not known, sinceWritten
// returns sent.
func sinceWritten(request future, sent time.Time) time.Time {
	if r, ok := request.(interface{ writtenAt() time.Time }); ok {
		return later(r.writtenAt(), sent)
	}
	return sent
}

// While the keys of a lock move to another cluster node, a call is sent again after
// every tryAgainInterval, for at most tryAgainLimit.
const (
	tryAgainInterval = 2 * time.Millisecond
	tryAgainLimit    = 5 * time.Second
)

// wait implements [future]. If only some of the lock's keys have moved to another cluster node, it sends the call
// again until all have.
func (c *call) wait(ctx context.Context) (any, error) {
	var began time.Time
	for {
		mayFallBack := c.fallback.after != nil
		if err := c.resendIfNeeded(ctx); err != nil {
			return nil, err
		}
		if mayFallBack && c.fallback.after == nil {
			continue // the server may not know the script of the fallback
		}
		err := c.reply.Wait(ctx)
		if err == nil || errors.Is(err, redis.Nil) {
			return c.cmd.Value, nil
		}
		if began.IsZero() {
			began = time.Now()
		}
		switch {
		case !redis.HasErrorPrefix(err, "TRYAGAIN") || time.Since(began) > tryAgainLimit:
			return nil, err
		case !sleep(ctx, tryAgainInterval):
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		c.resend(ctx, "evalsha", c.script.sha)
	}
}

// replicate waits for the replicas that the options demand, after a lock was granted
// to a request sent at sent. If too few confirm the lock, it is undone. replicate
// returns the time from which the lease counts.
//
// WAIT confirms only what its own connection has written, and it blocks that
// connection. So replicate extends the lock once more on a dedicated connection, with
// WAIT right behind it. The acquire itself stays on the ordered pipe, on which it can
// be undone.
func (b *base) replicate(ctx context.Context, token string, sent time.Time) (time.Time, error) {
	if b.opts.Replicas == 0 {
		return sent, nil
	}
	sent = time.Now()
	w := &waitTransport{core: b.client.core, Transport: b.client.transport, key: b.key, opts: b.opts}
	reply, err := b.protocol.extend(ctx, w, token, b.opts.keyTTL()).wait(ctx)
	switch {
	case err != nil:
		err = describe("replicate", b.key, err)
	case reply != int64(1):
		err = fmt.Errorf("lock: acquire %q: %w", b.key, ErrLost)
	case w.acks < int64(b.opts.Replicas):
		err = fmt.Errorf("lock: acquire %q: %w: %d of %d confirmed it within %v", b.key, errNotReplicated, w.acks, b.opts.Replicas, b.opts.ReplicaTimeout)
	default:
		return sent, nil
	}
	b.client.undo(b.protocol, token, sent.Add(b.opts.keyTTL()), nil)
	return sent, err
}

// waitTransport is a transport that sends WAIT behind each command.
type waitTransport struct {
	transport.Transport
	*core
	key  string
	opts Options
	acks int64 // replicas that have the last write; read it after the reply
}

// Send implements [transport.Transport].
func (w *waitTransport) Send(ctx context.Context, cmd *transport.Command) transport.Reply {
	r := &waitReply{alive: w.alive, done: make(chan struct{})}
	w.tasks.spawn(func() {
		defer close(r.done)
		w.acks, r.err = w.Transport.ExecWithWait(ctx, w.key, cmd, w.opts.Replicas, w.opts.ReplicaTimeout)
	})
	return r
}

// waitReply is the reply to a command with WAIT behind it.
type waitReply struct {
	alive context.Context // ends with the core
	done  chan struct{}
	err   error // valid when done is closed
}

func (r *waitReply) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.alive.Done():
		return ErrClosed
	}
}
