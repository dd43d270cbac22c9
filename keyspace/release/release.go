// Package release changes locks of other clients: it ends a hold, extends it, or sets a
// deadline on a lock that has none. Each action is a script that reads the lock again
// and changes it only if it is as it was seen. Each is written to an audit log.
package release

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// AuditLog stores audit records. Write returns after the record is durable, or an
// error. After an error the action is not run.
type AuditLog interface {
	Write(keyspace.AuditRecord) error
}

// Executor changes locks of other clients. It logs each action before it runs a
// script that reads the lock again and changes it in one step, and logs the outcome
// afterwards. It may be used by several goroutines.
type Executor struct {
	nodes   func(context.Context) map[string]inspect.Client
	formats []keyspace.Format
	log     AuditLog
	now     func() time.Time
}

// NewExecutor returns an executor that writes its actions to log. For each action it reaches
// the server of a lock by name: Lock.Node, and Vote.Node for a Redlock. The clients remain
// the caller's, and must use the database of the locks.
func NewExecutor(nodes func(context.Context) map[string]inspect.Client, formats []keyspace.Format, log AuditLog) *Executor {
	return &Executor{nodes: nodes, formats: formats, log: log, now: time.Now}
}

// Act runs an action on all holds in seen. To act on only some, remove the others from
// seen.Holders. The holders are not informed; they continue until they check. ttl is the
// time to live that Extend and Expire give from now on. A hold with a later deadline keeps
// it: if all have one, Extend changes nothing and returns an ErrLater.
//
// It returns an ErrChanged and does nothing if the holders have changed, or if an Expire finds
// a deadline, and an ErrNotSupported if locks of this kind cannot be changed by others. A
// Redlock is changed on all of its servers; that is done if a majority of them has answered
// so. A replica returns an ErrReadOnly, a missing permission an ErrNoPermission. The outcome
// is Unanswered if a server may have run the script: see Recheck.
func (e *Executor) Act(ctx context.Context, what keyspace.Action, seen keyspace.Lock, ttl time.Duration) (keyspace.AuditRecord, error) {
	scripts, err := keyspace.Scripts(e.formats, what, seen, ttl)
	if err != nil {
		return keyspace.AuditRecord{}, err
	}
	intent := keyspace.AuditRecord{
		ID: uuid.NewString(), At: e.now(), Action: what, Lock: seen.ID(), Format: seen.Format,
		Holders: digests(seen.Holders), TTL: ttl, Outcome: keyspace.Intended, Of: len(seen.Votes),
	}
	for _, s := range scripts {
		intent.Nodes = append(intent.Nodes, s.Node)
	}
	if err := ctx.Err(); err != nil {
		return keyspace.AuditRecord{}, fmt.Errorf("nothing was changed: %w", err)
	}
	if err := e.log.Write(intent); err != nil {
		return keyspace.AuditRecord{}, fmt.Errorf("nothing was changed, because the audit log cannot be written: %w", err)
	}
	outcome := intent
	outcome.Nodes = nil
	err = e.run(ctx, scripts, seen, &outcome)
	outcome.At = e.now()
	if lost := e.log.Write(outcome); lost != nil {
		err = errors.Join(err, fmt.Errorf("write the outcome %q to the audit log: %w", outcome.Outcome, lost))
	}
	return outcome, err
}

// Refused returns why the Redis user may not act; "" = it may, or that is not known, as before Redis 7.0 and
// without the right to ask.
func (e *Executor) Refused(ctx context.Context) string {
	for addr, rdb := range e.nodes(ctx) {
		name, err := rdb.Do(ctx, "acl", "whoami").Text()
		if err != nil {
			continue
		}
		if said, err := rdb.Do(ctx, "acl", "dryrun", name, "eval", "return 1", 0).Text(); err == nil && said != "OK" {
			return "the user " + name + " may not run EVAL on " + addr
		}
	}
	return ""
}

// run runs the scripts on all servers at the same time and sums up the results. A server without an
// answer counts as one that has the lock as it was.
func (e *Executor) run(ctx context.Context, scripts []keyspace.Script, seen keyspace.Lock, sum *keyspace.AuditRecord) error {
	acted, failed := make([]bool, len(scripts)), make([]error, len(scripts))
	onEach(scripts, func(i int, s keyspace.Script) { acted[i], failed[i] = e.runOn(ctx, s) })
	var failures inspect.ServerErrors
	settled, sent := 0, 0 // servers that have the lock as it shall be, and those that may have it so
	for i, s := range scripts {
		if acted[i] {
			sum.Nodes = append(sum.Nodes, s.Node)
		}
		switch err := failed[i]; {
		case err == nil && (acted[i] || sum.Action != keyspace.Extend):
			settled++
		case err != nil:
			failures = append(failures, fmt.Errorf("at %s: %w", s.Node, err))
			answered, mayBeDone := answerIn(err)
			if !answered {
				sum.Unanswered = append(sum.Unanswered, s.Node)
			}
			if mayBeDone {
				sent++
			}
		}
	}
	on, _ := seen.Copies()
	quorum := keyspace.Quorum(len(scripts))
	switch {
	case settled >= quorum && len(sum.Nodes) > 0 && 2*(len(sum.Nodes)+len(failures)) > len(on):
		sum.Outcome = keyspace.Done
		return nil
	case len(failures) == 0:
		return e.explainFailure(ctx, scripts, seen, sum)
	case sent > 0 && settled+sent >= quorum:
		sum.Outcome = keyspace.Unanswered
	default:
		sum.Outcome = keyspace.Failed
	}
	err := fmt.Errorf("%s %q %w", sum.Action, seen.Key, failures)
	if why := sum.Shortfall(); why != "" {
		err = fmt.Errorf("%s %q: %s: %w", sum.Action, seen.Key, why, failures)
	}
	sum.Err = err.Error()
	return err
}

// onEach calls f for all scripts at the same time.
func onEach(scripts []keyspace.Script, f func(i int, s keyspace.Script)) {
	var all sync.WaitGroup
	for i, s := range scripts {
		all.Go(func() { f(i, s) })
	}
	all.Wait()
}

// explainFailure returns why scripts have changed nothing although no server returned
// an error.
func (e *Executor) explainFailure(ctx context.Context, scripts []keyspace.Script, seen keyspace.Lock, sum *keyspace.AuditRecord) error {
	of := len(scripts)
	found := e.read(ctx, scripts, seen)
	now, err := found.lock, found.err
	if err == nil && len(sum.Nodes) == 0 && unchanged(now, seen) {
		err = fmt.Errorf("a script of this user may not read the lock: %w", ErrNoPermission)
		if sum.Action == keyspace.Extend && now.Expires.Sub(now.ReadAt) > sum.TTL-time.Second { // between the script and this read passes less
			err = keyspace.ErrLater
		}
	}
	if err != nil {
		undone := "nothing was changed"
		if of > 1 {
			undone = fmt.Sprintf("done on %d of %d servers only", len(sum.Nodes), of)
		}
		err = fmt.Errorf("%s %q: %s: %w", sum.Action, seen.Key, undone, err)
		sum.Outcome, sum.Err = keyspace.Failed, err.Error()
		return err
	}
	changed := &keyspace.ChangedError{Key: seen.Key, Now: now, Done: len(sum.Nodes), Of: of}
	sum.Outcome, sum.Now = keyspace.Changed, holding(now)
	return changed
}

// Recheck reads a lock again after an action with the outcome Unanswered, until enough servers
// answer or ctx ends. It logs what it has found, and returns it, also as a sentence.
func (e *Executor) Recheck(ctx context.Context, after keyspace.AuditRecord, seen keyspace.Lock) (keyspace.Outcome, string, error) {
	scripts, err := keyspace.Scripts(e.formats, after.Action, seen, after.TTL)
	if err != nil {
		return "", "", err
	}
	found, quorum := e.read(ctx, scripts, seen), keyspace.Quorum(len(scripts))
	for len(found.on) < quorum && len(found.on)+len(found.silent) >= quorum {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || errors.Is(found.err, ErrNoPermission) {
			return "", "", found.err
		}
		found = e.read(ctx, scripts, seen)
	}
	now := found.lock
	after.At, after.Nodes, after.Unanswered, after.Now, after.Err = e.now(), found.on, found.silent, holding(now), ""
	text := "it is gone; whether this action did it is not known"
	after.Outcome = keyspace.Gone
	switch {
	case len(found.on) >= quorum:
		after.Outcome, text = keyspace.StillHeld, "it is still held: not "+after.Action.Past()+" so far"
		if left, ends := now.TTL(now.ReadAt); ends && after.Action != keyspace.ForceRelease {
			text = "it is still held, and ends in " + humanize.Left(left)
			after.Now += ", ends in " + humanize.Left(left)
		}
	case len(found.on) == 0 && now != nil && len(now.Holders) > 0:
		after.Outcome, text = keyspace.Taken, "another holder has it: the hold that you saw has ended"
	}
	return after.Outcome, text, e.log.Write(after)
}

// unchanged reports whether the holders in seen still hold the lock.
func unchanged(now *keyspace.Lock, seen keyspace.Lock) bool {
	if now == nil || now.Expires.IsZero() != seen.Expires.IsZero() || !slices.Equal(now.Whole, seen.Whole) {
		return false
	}
	return !slices.ContainsFunc(seen.Holders, func(was keyspace.Holder) bool {
		return !slices.ContainsFunc(now.Holders, func(h keyspace.Holder) bool {
			again := h.Late == 0 && !h.Since.IsZero() && !h.Since.Equal(was.Since)
			return h.ID == was.ID && h.Mode == was.Mode && h.Depth == was.Depth && !again
		})
	})
}

// runOn runs a script on its server.
func (e *Executor) runOn(ctx context.Context, s keyspace.Script) (bool, error) {
	rdb, err := e.client(ctx, s.Node)
	if err != nil {
		return false, err
	}
	argv := make([]any, len(s.Args))
	for i, a := range s.Args {
		argv[i] = a
	}
	acted, err := rdb.Eval(ctx, s.Lua, s.Keys, argv...).Int()
	if redis.HasErrorPrefix(err, "MOVED") {
		p := rdb.Pipeline()
		p.Do(ctx, "asking") // without it, a node to which the slot is being moved does not serve the key
		asked := p.Eval(ctx, s.Lua, s.Keys, argv...)
		_, _ = p.Exec(ctx) // each command has its own error
		acted, err = asked.Int()
	}
	return acted == 1, scriptError(err)
}

// client returns the client of a server.
func (e *Executor) client(ctx context.Context, node string) (inspect.Client, error) {
	if rdb := e.nodes(ctx)[node]; rdb != nil {
		return rdb, nil
	}
	return nil, &net.OpError{Op: "dial", Err: errors.New("there is no connection to the server")}
}

// answer is what the servers have of a lock now.
type answer struct {
	lock       *keyspace.Lock // nil = it is gone, as far as the servers answer
	on, silent []string       // servers with a hold that was seen; servers that cannot say
	err        error          // of the silent servers
}

// read reads the current state of a lock on the servers of scripts.
func (e *Executor) read(ctx context.Context, scripts []keyspace.Script, seen keyspace.Lock) (l answer) {
	parts := make([]keyspace.Part, len(scripts))
	onEach(scripts, func(i int, s keyspace.Script) {
		now, err := e.readAgain(ctx, s.Node, seen)
		parts[i] = keyspace.Part{Addr: s.Node, Err: err}
		if now != nil {
			parts[i].Locks = []*keyspace.Lock{now}
		}
	})
	var failures inspect.ServerErrors
	for _, p := range parts {
		if p.Err != nil {
			failures = append(failures, fmt.Errorf("at %s: %w", p.Addr, p.Err))
			l.silent, l.err = append(l.silent, p.Addr), failures
		} else if len(p.Locks) > 0 && slices.ContainsFunc(p.Locks[0].Holders, func(h keyspace.Holder) bool { _, was := seen.Holder(h.ID); return was }) {
			l.on = append(l.on, p.Addr)
		}
	}
	if now := keyspace.Merge(parts, keyspace.MergeOptions{Redlock: len(parts) > 1}).Locks; len(now) > 0 {
		l.lock = now[0]
	}
	return l
}

// readAgain reads the current state of a lock on a server; nil if it is gone.
func (e *Executor) readAgain(ctx context.Context, node string, seen keyspace.Lock) (*keyspace.Lock, error) {
	rdb, err := e.client(ctx, node)
	if err != nil {
		return nil, err
	}
	s := inspect.NewScanner(rdb, inspect.ScanOptions{Formats: e.formats, DB: seen.DB, MinConfidence: keyspace.Possible})
	now, err := s.ReadLock(ctx, seen.Key)
	if errors.Is(err, inspect.ErrUnreadable) {
		return nil, fmt.Errorf("this user may not read the lock: %w", ErrNoPermission)
	}
	return now, scriptError(err)
}

// randomText is a UUID, or a long run of characters as in hex and Base64.
var randomText = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9A-Za-z+/]{16}`)

// digests returns the label and a digest of the ID of each holder. It leaves out a label that
// may be the token.
func digests(holders []keyspace.Holder) []string {
	var all []string
	for _, h := range holders {
		if h.Label == h.ID || randomText.MatchString(h.Label) {
			h.Label = ""
		}
		sum := sha256.Sum256([]byte(h.ID))
		all = append(all, cmp.Or(h.Label, "?")+" sha256:"+hex.EncodeToString(sum[:8]))
	}
	return all
}

// holding names the holders of a lock without their tokens.
func holding(l *keyspace.Lock) string {
	if l == nil || len(l.Holders) == 0 {
		return "not held any more"
	}
	return "held by " + strings.Join(digests(l.Holders), " and ")
}

// answerIn reports whether err is the answer of a server and, if it is not, whether the server may
// have run the script. A log-in that fails counts so: go-redis does not tell it from a script.
func answerIn(err error) (answered, mayBeDone bool) {
	_, answered = errors.AsType[*releaseError](err)
	dial, ok := errors.AsType[*net.OpError](err)
	unsent := ok && dial.Op == "dial" || errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout)
	return answered, !answered && !unsent
}

// Errors of a server that refuses an action, independent of its version.
var (
	ErrReadOnly     = errors.New("the server is a read-only replica")
	ErrNoPermission = errors.New("the ACL does not allow this user to change the lock")
)

// releaseError is an error that a server returned for a script that changes a lock.
type releaseError struct {
	said string // the message without what the server adds to errors in scripts
	kind error  // ErrReadOnly, ErrNoPermission, or what go-redis returned
}

func (e *releaseError) Error() string { return e.said }
func (e *releaseError) Unwrap() error { return e.kind }

// scriptError returns the error of a script as if its command had been sent alone.
// Errors that no server returned are not changed.
func scriptError(err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return err
	}
	e := &releaseError{said: stripScriptError(err.Error()), kind: err}
	code, _, _ := strings.Cut(e.said, " ")
	switch code {
	case "READONLY":
		e.kind = ErrReadOnly
	case "NOPERM":
		e.kind = ErrNoPermission
	}
	return e
}

// What servers add to an error of a command in a script.
var (
	// Redis 6: ERR Error running script (call to f_<sha>): @user_script:9: @user_script: 9:
	// -OOM … The position appears twice if the server refused to run the command. The
	// error of a command that ran has no dash.
	beforeError = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]+\): @user_script:\d+: (@user_script: \d+: )?-?`)
	// Redis 7 and later, Valkey: OOM … script: <sha>, on @user_script:9.
	afterError = regexp.MustCompile(` script: [0-9a-f]+, on @user_script:\d+\.$`)
)

// stripScriptError removes what a server adds to the error of a command in a script,
// and gives a missing permission its usual code.
func stripScriptError(text string) string {
	text = beforeError.ReplaceAllString(text, "")
	text = afterError.ReplaceAllString(text, "")
	if what, denied := strings.CutPrefix(text, "ERR ACL failure in script: "); denied { // Redis 7.2 and later, Valkey
		return "NOPERM " + what
	}
	plain := strings.TrimPrefix(text, "ERR ")
	if strings.HasPrefix(plain, "The user executing the script can't ") { // Redis 6.0 and 7.0
		return "NOPERM " + plain
	}
	return text
}
