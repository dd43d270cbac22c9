package keyspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/shell"
)

// Reasons why nothing was done.
var (
	ErrChanged      = errors.New("the lock is not as it was seen")
	ErrNotSupported = errors.New("locks of this format cannot be changed from outside")
)

// ChangedError is an ErrChanged with the current state of the lock. On servers where
// the lock had changed, nothing was done. Of a Redlock, some servers may have had the
// lock unchanged, but no majority.
type ChangedError struct {
	Key  string
	Now  *Lock // nil = the lock is gone
	Done int   // servers of a Redlock on which the action was done,
	Of   int   // of those on which the lock was seen
}

// Error names the current holders.
func (e *ChangedError) Error() string {
	if e.Done > 0 {
		return fmt.Sprintf("done on %d of %d servers only: elsewhere %q is %s", e.Done, e.Of, e.Key, e.now())
	}
	return fmt.Sprintf("nothing was done: %q is %s", e.Key, e.now())
}

// Is reports whether target is ErrChanged.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// now describes the current holders.
func (e *ChangedError) now() string {
	if e.Now == nil || len(e.Now.Holders) == 0 {
		return "not held any more"
	}
	var names []string
	for _, h := range e.Now.Holders {
		name := h.Name()
		if h.Mode != "" {
			name += " (" + string(h.Mode) + ")"
		}
		if h.Count > 1 {
			name += fmt.Sprintf(" %d times", h.Count)
		}
		names = append(names, name)
	}
	return "now held by " + strings.Join(names, " and ")
}

// ForceReleaser changes locks of other clients. It logs each action before it runs a
// script that reads the lock again and changes it in one step, and logs the outcome
// afterwards. It may be used by several goroutines.
type ForceReleaser struct {
	nodes   map[string]redis.UniversalClient
	formats formatSet
	log     AuditLog
	now     func() time.Time
}

// NewForceReleaser returns a releaser that writes its actions to j. It reaches the
// server of a lock by name: Lock.Node, and Vote.Node for a Redlock. The clients remain
// the caller's, and must use the database of the locks.
func NewForceReleaser(nodes map[string]redis.UniversalClient, formats []Format, j AuditLog) *ForceReleaser {
	return &ForceReleaser{nodes: nodes, formats: formats, log: j, now: time.Now}
}

// ForceRelease ends all holds in seen. To end only some, remove the others from
// seen.Holders. The holders are not informed; they continue until they check.
//
// It returns an ErrChanged and does nothing if the holders have changed, and an
// ErrNotSupported if locks of this kind cannot be released by others. A Redlock is
// released on every server that has the same token; that is done when a majority has
// done it. A replica returns an ErrReadOnly, a missing permission an ErrNoPermission.
func (fr *ForceReleaser) ForceRelease(ctx context.Context, seen Lock) (AuditRecord, error) {
	return fr.perform(ctx, ForceRelease, seen, 0)
}

// Extend sets a new deadline of the holds in seen, ttl from now.
func (fr *ForceReleaser) Extend(ctx context.Context, seen Lock, ttl time.Duration) (AuditRecord, error) {
	return fr.perform(ctx, Extend, seen, ttl)
}

// Expire sets a deadline on a lock that has none. It returns an ErrChanged if the lock
// has one by now.
func (fr *ForceReleaser) Expire(ctx context.Context, seen Lock, ttl time.Duration) (AuditRecord, error) {
	return fr.perform(ctx, Expire, seen, ttl)
}

// perform runs an action and logs it.
func (fr *ForceReleaser) perform(ctx context.Context, what Action, seen Lock, ttl time.Duration) (AuditRecord, error) {
	cmd, err := fr.formats.command(what, seen, ttl)
	if err != nil {
		return AuditRecord{}, err
	}
	intent := AuditRecord{
		ID: uuid.NewString(), At: fr.now(), Action: what, Lock: seen.ID(), Format: seen.Format,
		Holders: digests(seen.Holders), TTL: ttl, Outcome: Intended,
	}
	if err := fr.log.Write(intent); err != nil {
		return AuditRecord{}, fmt.Errorf("nothing was done, because it could not be written down: %w", err)
	}
	outcome := intent
	err = fr.run(ctx, cmd, seen, &outcome)
	outcome.At = fr.now()
	if lost := fr.log.Write(outcome); lost != nil {
		err = errors.Join(err, fmt.Errorf("write down that it is %s: %w", outcome.Outcome, lost))
	}
	return outcome, err
}

// run sends the command to every server of the lock and sums up the results.
func (fr *ForceReleaser) run(ctx context.Context, cmd command, seen Lock, sum *AuditRecord) error {
	targets := targetsOf(seen)
	var failures []error
	for _, t := range targets {
		done, err := fr.runOn(ctx, t.node, cmd.forTarget(t.seen))
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("%s %q at %s: %w", cmd.action, seen.Key, t.node, err))
		case done:
			sum.Nodes++
		}
	}
	switch {
	case sum.Nodes > len(targets)/2:
		sum.Outcome = Done
	case len(failures) > 0:
		sum.Outcome, sum.Err = Failed, errors.Join(failures...).Error()
		return errors.Join(failures...)
	default:
		return fr.explainFailure(ctx, seen, sum, len(targets))
	}
	return nil
}

// explainFailure returns why scripts have changed nothing although no server returned
// an error.
func (fr *ForceReleaser) explainFailure(ctx context.Context, seen Lock, sum *AuditRecord, of int) error {
	now, err := fr.readAgain(ctx, seen)
	if err == nil && sum.Nodes == 0 && unchanged(now, seen) {
		err = fmt.Errorf("a script of this user may not read it: %w", ErrNoPermission)
	}
	if err != nil {
		undone := "nothing was done"
		if of > 1 {
			undone = fmt.Sprintf("done on %d of %d servers only", sum.Nodes, of)
		}
		err = fmt.Errorf("%s %q: %s: %w", sum.Action, seen.Key, undone, err)
		sum.Outcome, sum.Err = Failed, err.Error()
		return err
	}
	changed := &ChangedError{Key: seen.Key, Now: now, Done: sum.Nodes, Of: of}
	sum.Outcome, sum.Now = Changed, changed.now()
	return changed
}

// unchanged reports whether the holders in seen still hold the lock.
func unchanged(now *Lock, seen Lock) bool {
	if now == nil || now.Expires.IsZero() != seen.Expires.IsZero() {
		return false
	}
	return !slices.ContainsFunc(seen.Holders, func(was Holder) bool {
		h, there := now.holder(was.ID)
		again := !h.Since.IsZero() && !h.Since.Equal(was.Since)
		return !there || h.Count != was.Count || h.Mode != was.Mode || again
	})
}

// runOn runs a command on one server.
func (fr *ForceReleaser) runOn(ctx context.Context, node string, cmd command) (bool, error) {
	rdb, known := fr.nodes[node]
	if !known {
		return false, fmt.Errorf("there is no connection to it")
	}
	argv := make([]any, len(cmd.argv))
	for i, a := range cmd.argv {
		argv[i] = a
	}
	acted, err := rdb.Eval(ctx, cmd.script, cmd.keys, argv...).Int()
	if redis.HasErrorPrefix(err, "MOVED") {
		acted, err = evalAsking(ctx, rdb, cmd, argv)
	}
	return acted == 1, scriptError(err)
}

// evalAsking runs a command on a cluster node to which the slot is being moved. Such a
// node serves a key only after ASKING.
func evalAsking(ctx context.Context, rdb redis.UniversalClient, cmd command, argv []any) (int, error) {
	p := rdb.Pipeline()
	p.Do(ctx, asking)
	acted := p.Eval(ctx, cmd.script, cmd.keys, argv...)
	_, _ = p.Exec(ctx) // each command has its own error
	return acted.Int()
}

// readAgain reads the current state of a lock; nil if it is gone.
func (fr *ForceReleaser) readAgain(ctx context.Context, seen Lock) (*Lock, error) {
	node := targetsOf(seen)[0].node
	rdb, known := fr.nodes[node]
	if !known {
		return nil, fmt.Errorf("there is no connection to %s", node)
	}
	typ, err := rdb.Type(ctx, seen.Key).Result()
	if err != nil {
		return nil, scriptError(err)
	}
	r := reader{meteredConn: meteredConn{rdb: rdb, denied: &deniedCommands{}}, formats: fr.formats, atLeast: Possible, node: node, db: seen.DB}
	found, err := r.detect(ctx, []keyRef{{key: seen.Key, typ: typ}})
	switch {
	case err != nil:
		return nil, scriptError(err)
	case slices.Contains(r.unreadable, seen.Key):
		return nil, fmt.Errorf("this user may not read it: %w", ErrNoPermission)
	case len(found) == 0:
		return nil, nil
	}
	return &found[0].lock, nil
}

// target is a server with the lock as it was seen there.
type target struct {
	node string
	seen Lock
}

// targetsOf lists the servers of a lock: one, except for a Redlock. Servers where a
// Redlock has another token or none are left out.
func targetsOf(seen Lock) []target {
	var all []target
	for _, v := range seen.Votes {
		held := slices.ContainsFunc(seen.Holders, func(h Holder) bool { return h.ID == v.Token })
		if held {
			there := seen
			there.Node = v.Node
			all = append(all, target{v.Node, there})
		}
	}
	if len(all) == 0 {
		return []target{{seen.Node, seen}}
	}
	return all
}

// command is an action as it is sent.
type command struct {
	action  Action
	script  string
	keys    []string
	argv    []string
	actions *Actions
	ttl     time.Duration
}

// onlyWithoutTTL precedes the extend script of Expire, which requires a lock without a
// deadline.
const onlyWithoutTTL = "if redis.call('PTTL', KEYS[1]) ~= -1 then return 0 end\n"

// command returns the command for an action.
func (s formatSet) command(what Action, seen Lock, ttl time.Duration) (command, error) {
	i := slices.IndexFunc(s, func(f Format) bool { return f.Name == seen.Format })
	switch {
	case i < 0:
		return command{}, fmt.Errorf("%s %q: there is no format %q", what, seen.Key, seen.Format)
	case s[i].Actions == nil:
		return command{}, fmt.Errorf("%s %q, a lock of %s: %w", what, seen.Key, s[i].Library, ErrNotSupported)
	case len(seen.Holders) == 0:
		return command{}, &ChangedError{Key: seen.Key}
	case what == Expire && !seen.Expires.IsZero():
		return command{}, &ChangedError{Key: seen.Key, Now: &seen}
	}
	actions := s[i].Actions
	cmd := command{action: what, script: actions.ForceRelease, actions: actions, ttl: ttl}
	if what != ForceRelease {
		if ttl < time.Millisecond {
			return command{}, fmt.Errorf("%s %q: the time to live must be at least 1ms", what, seen.Key)
		}
		cmd.script = actions.Extend
	}
	if cmd.script == "" {
		return command{}, fmt.Errorf("%s %q, a lock of %s: %w", what, seen.Key, s[i].Library, ErrNotSupported)
	}
	if what == Expire {
		cmd.script = onlyWithoutTTL + cmd.script
	}
	return cmd.forTarget(seen), nil
}

// forTarget returns the command with the keys and arguments for a lock.
func (c command) forTarget(seen Lock) command {
	c.keys, c.argv = c.actions.Keys(seen), c.actions.Args(seen)
	if c.action != ForceRelease {
		c.argv = append(slices.Clone(c.argv), fmt.Sprint(c.ttl.Milliseconds()))
	}
	return c
}

// SafeCommand returns a command line for redis-cli and a POSIX shell that does the same
// as a ForceReleaser, for a user with the permission. It contains the server and the
// additional flags. It is one line of printable ASCII, or one line for each server of a
// Redlock, and works for any key and token. It fails when the ForceReleaser would.
func SafeCommand(formats []Format, what Action, seen Lock, ttl time.Duration, flags ...string) (string, error) {
	cmd, err := formatSet(formats).command(what, seen, ttl)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, t := range targetsOf(seen) {
		line, ok := cmd.forTarget(t.seen).shellLine(append(redisCLI(t.node, seen.DB), flags...))
		if !ok {
			return "", fmt.Errorf("no command line can name the server of %q", seen.Key)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

// redisCLI returns redis-cli with the flags for a node and database.
func redisCLI(node string, db int) []string {
	words := []string{"redis-cli"}
	if host, port, err := net.SplitHostPort(node); err == nil {
		words = append(words, "-h", host, "-p", port)
	} else if node != "" {
		words = append(words, "-s", node)
	}
	if db != 0 {
		words = append(words, "-n", fmt.Sprint(db))
	}
	return words
}

// shellLine returns the command as a shell line: with arguments or, if a key or token
// cannot be an argument, with input on stdin.
func (c command) shellLine(cli []string) (line string, ok bool) {
	words := slices.Concat([]string{"EVAL", stripComments(c.script), fmt.Sprint(len(c.keys))}, c.keys, c.argv)
	if line, ok := shell.Line(slices.Concat(cli, words)...); ok {
		return line, true
	}
	for i, w := range words {
		words[i] = quotedForRedis(w)
	}
	line, ok = shell.Line(cli...)
	return `printf '%s\n' '` + strings.ReplaceAll(strings.Join(words, " "), "'", `'\''`) + "' | " + line, ok
}

// quotedForRedis quotes s for the input of redis-cli.
func quotedForRedis(s string) string {
	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out.WriteString(`\` + string(c))
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
	}
	return `"` + out.String() + `"`
}

// stripComments returns a script in one line without comments, with the quotes that are
// easiest to quote again.
func stripComments(script string) string {
	var lines []string
	for line := range strings.Lines(script) {
		code, _, _ := strings.Cut(line, "--")
		if code = strings.TrimSpace(code); code != "" {
			lines = append(lines, code)
		}
	}
	lua := strings.Join(lines, " ")
	if strings.Contains(lua, `"`) {
		return lua
	}
	return strings.ReplaceAll(lua, "'", `"`)
}

// digests returns a digest of each holder's ID with its label.
func digests(holders []Holder) []string {
	var all []string
	for _, h := range holders {
		sum := sha256.Sum256([]byte(h.ID))
		all = append(all, cmp.Or(h.Label, "?")+" sha256:"+hex.EncodeToString(sum[:8]))
	}
	return all
}
