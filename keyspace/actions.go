package keyspace

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/internal/shell"
)

// Actions are the scripts that change a lock of a format from outside. A script reads
// the lock again, and changes it only if every holder in its arguments is still there
// with the same mode and depth. Later holders are not changed.
//
// Each script returns 1 if it has changed the lock and 0 if it has not. ARGV begins
// with the result of Args; KEYS is the result of Keys.
type Actions struct {
	Keys func(Lock) []string // the lock's own key first, then the other keys that the script touches
	Args func(Lock) []string // nil = this lock cannot be compared
	// ForceRelease is Lua that ends the holds in its arguments as the library would: it
	// deletes the same keys and wakes waiters in the same way.
	ForceRelease string
	// Extend is Lua that sets a later deadline of the holds in its arguments. The last of
	// ARGV is the time to live in ms. The script must change deadlines only with
	// extend(key), which returns 1 if it has changed the deadline of the key and 0 if not,
	// or if later(ms left; -1 = no deadline) is true. Empty: the format does not store a
	// deadline that others may change.
	Extend string
	// WakeHint says how waiters are woken, for people: "receive 0 on channel". Empty: waiters
	// poll.
	WakeHint string
}

// ReleaseChannel is where a library notifies waiters of a release. A lock that
// vanishes without such a message was not released.
type ReleaseChannel struct {
	Pattern string // of the channels, for PSUBSCRIBE
	// Key returns the key of the lock that a message is about; false if it is not about a
	// lock.
	Key func(channel, payload string) (string, bool)
	// ToWaiter reports whether messages on a channel go to one waiter only. Such a library
	// sends no message while there are no waiters. Nil: all messages go to all subscribers.
	ToWaiter func(channel string) bool
}

// Action is a change of a lock from outside.
type Action string

// Actions, from the most to the least dangerous.
const (
	ForceRelease Action = "release" // end the holds that were seen
	Extend       Action = "extend"  // set a later deadline
	Expire       Action = "expire"  // set a deadline on a lock that has none
)

// Outcome is the result of an action.
type Outcome string

// The outcomes. Intended is logged before anything is sent.
const (
	Intended   Outcome = "intended"
	Done       Outcome = "done"
	Changed    Outcome = "changed" // the lock had changed; nothing was changed
	Failed     Outcome = "failed"  // see Err: refused, or not sent; a Redlock without a majority
	Unanswered Outcome = "unknown" // sent, and not answered: it may or may not be done
)

// What the recheck of an Unanswered action has found, as the outcome of a further record.
const (
	StillHeld Outcome = "held"  // the hold was there; of a Redlock, on a majority
	Gone      Outcome = "gone"  // the lock was not held
	Taken     Outcome = "taken" // another holder had the lock
)

// AuditRecord is one record of an action: its intent, its outcome, or what the recheck of an
// Unanswered action has found. It contains digests of the tokens, because a token is enough to
// release the lock.
type AuditRecord struct {
	ID         string    // the same for all records of an action
	At         time.Time // on the local clock
	Action     Action
	Lock       ID
	Format     string
	Holders    []string // labels of the holders that were seen, and digests of their IDs
	TTL        time.Duration
	Outcome    Outcome
	Nodes      []string // servers on which the action is tried (Intended), is done, or the hold was found; host:port
	Unanswered []string // servers without an answer, which count as holding
	Of         int      // servers of a Redlock; 0 for other kinds
	Now        string   // holders that the lock has now, like Holders
	Err        string
}

// Past returns the action as a participle.
func (a Action) Past() string {
	return map[Action]string{ForceRelease: "released", Extend: "extended", Expire: "set to expire"}[a]
}

// Did names the action in the past tense, for a sentence that ends with the lock.
func (a Action) Did(ttl time.Duration) string {
	if a == Expire {
		return "set a deadline of " + humanize.Setting(ttl) + " for"
	}
	return a.Past()
}

// Shortfall says what it means that servers did not answer; "" if it means nothing for the outcome.
func (r AuditRecord) Shortfall() string {
	then := "may hold a majority"
	if r.Action != ForceRelease {
		then = "may keep the old deadline"
	}
	switch {
	case r.Of > 0 && len(r.Unanswered) > 0:
		return fmt.Sprintf("not %s: %d of %d servers did not answer and %s", r.Action.Past(), len(r.Unanswered), r.Of, then)
	case r.Outcome == Unanswered:
		return "no answer: it may or may not be " + r.Action.Past()
	default:
		return ""
	}
}

// Reasons why nothing was changed.
var (
	ErrChanged      = errors.New("the lock has changed since it was read")
	ErrNotSupported = errors.New("locks of this format cannot be changed from outside")
	ErrReleaseOnly  = errors.New("this format stores no deadline that others may change; the lock can only be released")
	ErrNotWhole     = errors.New("a release compares its whole value, which was not read")
	ErrEndless      = errors.New("it has no deadline that could be later")
	ErrRedacted     = errors.New("the recording hides the token, which a command needs")
	ErrLater        = errors.New("its deadline is as late already")
)

// ChangedError is an ErrChanged with the current state of the lock. On servers where
// the lock had changed, nothing was changed. Of a Redlock, some servers may have had the
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
		return fmt.Sprintf("done on %d of %d servers only: elsewhere %q is %s", e.Done, e.Of, e.Key, e.Holders())
	}
	return fmt.Sprintf("nothing was changed: %q is %s", e.Key, e.Holders())
}

// Is reports whether target is ErrChanged.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// Holders describes the current holders.
func (e *ChangedError) Holders() string {
	if e.Now == nil || len(e.Now.Holders) == 0 {
		return "not held any more"
	}
	var names []string
	for _, h := range e.Now.Holders {
		name := h.Name()
		if h.Mode != "" {
			name += " (" + string(h.Mode) + ")"
		}
		if h.Depth > 1 {
			name += fmt.Sprintf(" %d times", h.Depth)
		}
		names = append(names, name)
	}
	return "now held by " + strings.Join(names, " and ")
}

// Script is an action on a lock as one server gets it: the arguments of EVAL.
type Script struct {
	Node       string // host:port of the server
	Lua        string
	Keys, Args []string
}

// The scripts begin with later, which reports whether the new deadline is later than one
// with some ms left; -1 = none. So no script ever shortens a hold that has a deadline. That
// of Expire requires a lock without a deadline, and that of Extend does not give it one.
const (
	laterThanNone = `if redis.call('PTTL', KEYS[1]) ~= -1 then return 0 end
local ttl = tonumber(ARGV[#ARGV])
local function later(left) return left < ttl end
`
	laterThanSome = `local ttl = tonumber(ARGV[#ARGV])
local function later(left) return left >= 0 and left < ttl end
`
	extendKey = `local function extend(key)
  if later(redis.call('PTTL', key)) then return redis.call('PEXPIRE', key, ttl) end
  return 0
end
`
)

// Scripts returns the scripts of an action, one for each server that may have the lock: for a
// Redlock all of its servers. They change the holds in seen. ttl is the new time to live of Extend and Expire.
//
// It returns an ErrNotSupported if others cannot change locks of this format, an ErrNotWhole if it lacks what they compare, an
// ErrReleaseOnly if they cannot set its deadline, an ErrEndless if a lock without a deadline is to be extended, and an ErrChanged if the
// action does not apply to the lock. It returns an ErrRedacted for a lock of a recording
// without tokens.
func Scripts(formats []Format, what Action, seen Lock, ttl time.Duration) ([]Script, error) {
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name == seen.Format })
	switch {
	case i < 0:
		return nil, fmt.Errorf("%s %q: there is no format %q", what, seen.Key, seen.Format)
	case formats[i].Actions == nil:
		return nil, fmt.Errorf("%s %q, a lock of %s: %w", what, seen.Key, formats[i].Library, ErrNotSupported)
	case len(seen.Holders) == 0:
		return nil, &ChangedError{Key: seen.Key}
	case seen.redacted():
		return nil, fmt.Errorf("%s %q: %w", what, seen.Key, ErrRedacted)
	case what == Expire && !seen.Expires.IsZero():
		return nil, &ChangedError{Key: seen.Key, Now: &seen}
	case what == Extend && seen.Endless():
		return nil, fmt.Errorf("%s %q: %w", what, seen.Key, ErrEndless)
	case what != ForceRelease && ttl < time.Millisecond:
		return nil, fmt.Errorf("%s %q: the time to live must be at least 1ms", what, seen.Key)
	}
	actions := formats[i].Actions
	lua := actions.Extend
	if what == ForceRelease {
		lua = actions.ForceRelease
	}
	if lua == "" || what != ForceRelease && seen.NoExtend {
		return nil, fmt.Errorf("%s %q, a lock of %s: %w", what, seen.Key, formats[i].Library, ErrReleaseOnly)
	}
	switch what {
	case Expire:
		lua = laterThanNone + extendKey + lua
	case Extend:
		lua = laterThanSome + extendKey + lua
	}
	var all []Script
	for _, node := range nodesOf(seen) {
		there := seen
		there.Node = node
		s := Script{Node: node, Lua: lua, Keys: actions.Keys(there), Args: actions.Args(there)}
		if s.Args == nil {
			return nil, fmt.Errorf("%s %q: %w", what, seen.Key, ErrNotWhole)
		}
		if what != ForceRelease {
			s.Args = append(slices.Clone(s.Args), fmt.Sprint(ttl.Milliseconds()))
		}
		all = append(all, s)
	}
	return all, nil
}

// nodesOf lists the servers of a lock: one, except for a Redlock.
func nodesOf(seen Lock) []string {
	if len(seen.Votes) == 0 {
		return []string{seen.Node}
	}
	all := make([]string, len(seen.Votes))
	for i, v := range seen.Votes {
		all[i] = v.Node
	}
	return all
}

// ExactCommand returns a command line for redis-cli and a POSIX shell that does the same
// as the action itself, for a user with the permission. It contains the server and the
// additional flags. It is one line of printable ASCII, or one line for each server of a
// Redlock, and works for any key and token. It fails when [Scripts] does.
func ExactCommand(formats []Format, what Action, seen Lock, ttl time.Duration, flags ...string) (string, error) {
	scripts, err := Scripts(formats, what, seen, ttl)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, s := range scripts {
		line, ok := s.shellLine(append(redisCLI(s.Node, seen.DB), flags...))
		if !ok {
			return "", fmt.Errorf("no command line can name the server of %q", seen.Key)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

// WakeCommand returns a command line for redis-cli and a POSIX shell that wakes the next
// waiter of a lock that is free at now; "" if there is no such command. It changes no key.
func WakeCommand(formats []Format, l Lock, now time.Time, flags ...string) string {
	i := slices.IndexFunc(formats, func(f Format) bool { return f.Name == l.Format })
	if i < 0 || formats[i].Wake == nil || l.State(now) != Waiting {
		return ""
	}
	words := formats[i].Wake(l, now)
	if words == nil || l.redacted() {
		return ""
	}
	line, _ := shell.Line(slices.Concat(redisCLI(l.Node, l.DB), flags, words)...)
	return line
}

// RedactedToken begins each secret part of a token in a recording without tokens.
const RedactedToken = "redacted-"

// redacted reports whether the tokens of a lock were replaced in a recording.
func (l *Lock) redacted() bool {
	return slices.ContainsFunc(l.Holders, func(h Holder) bool { return strings.Contains(h.ID, RedactedToken) }) ||
		slices.ContainsFunc(l.Waiters, func(w Waiter) bool { return strings.Contains(w.ID, RedactedToken) })
}

// LateUnlock says what follows after a lock that is [Lock.Unchecked] has changed hands.
const LateUnlock = "When the old holder unlocks late, it frees the next holder's lock: the unlock does not check whose it is."

// Consequence says what an action does to a lock as it was at seen, with the figures of now. holder names its
// holder; ttl is the new time to live of Expire. It is "" if an Extend has no surprise.
func (l *Lock) Consequence(what Action, ttl time.Duration, holder string, seen, now time.Time) string {
	text := ""
	switch {
	case what == ForceRelease:
		text = holder + " will still believe it holds the lock and keep working. " + l.ending(seen, now)
	case what == Expire:
		text = fmt.Sprintf("it ends in %s, even while %s still works: code that sets no TTL seldom renews one. Then other clients may acquire it.",
			humanize.Setting(ttl), holder)
	case !l.Renewed.IsZero():
		text = fmt.Sprintf("The next renewal undoes it if it sets the holder's own TTL again: %s.", l.renewedText(now))
	}
	if l.Unchecked && what != Extend {
		text += " " + LateUnlock
	}
	return text
}

// ending says how the lock ends without an action.
func (l *Lock) ending(seen, now time.Time) string {
	left, expires := l.TTL(now)
	again := ""
	switch {
	case !expires:
		return "It never ends by itself."
	case l.State(now) == Lapsed:
		return fmt.Sprintf("Its deadline passed %s ago: any client may take it.", humanize.Left(-left))
	case l.renewalLate(seen) > 0:
		return fmt.Sprintf("Its renewals stopped %s ago (were every %s): it ends in %s unless they go on.",
			humanize.Left(now.Sub(l.Renewed)), humanize.Left(l.RenewedEvery), humanize.Left(left))
	case l.RenewedEvery > 0:
		return fmt.Sprintf("It will not end by itself: %s, so a client that renews it is alive. Stop the holder first.", l.renewedText(now))
	case !l.Renewed.IsZero():
		again = " again: " + l.renewedText(now)
	case l.Age(now).Duration < time.Second:
		again = ", which one read does not show"
	}
	return fmt.Sprintf("It would end by itself in %s unless it is renewed%s.", humanize.Left(left), again)
}

// renewedText says when the lock was renewed, and how often if that is known.
func (l *Lock) renewedText(now time.Time) string {
	times := ""
	if l.Renewals > 0 {
		times = " " + humanize.Times(l.Renewals)
	}
	return fmt.Sprintf("it was renewed%s, the last time %s ago", times, humanize.Left(now.Sub(l.Renewed)))
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

// shellLine returns the script as a shell line: with arguments or, if a key or token
// cannot be an argument, with input on stdin.
func (s Script) shellLine(cli []string) (line string, ok bool) {
	words := slices.Concat([]string{"EVAL", stripComments(s.Lua), fmt.Sprint(len(s.Keys))}, s.Keys, s.Args)
	if line, ok := shell.Line(slices.Concat(cli, words)...); ok {
		return line, true
	}
	for i, w := range words {
		words[i] = shell.RedisWord(w)
	}
	line, ok = shell.Line(cli...)
	return `printf '%s\n' '` + strings.ReplaceAll(strings.Join(words, " "), "'", `'\''`) + "' | " + line, ok
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
