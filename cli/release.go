package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/release"
	"locktop/tui/widget"
)

// releaseOptions configures a run of release.
type releaseOptions struct {
	writeFlags
	yes, dryRun bool
	json        bool
	token       string
	giveTTL     time.Duration

	given func(flag string) bool
}

func (o *releaseOptions) flags() *pflag.FlagSet {
	set := flagSection("Release")
	set.BoolVar(&o.write, "write", false, "allow changes: without this flag, locktop changes nothing")
	set.BoolVar(&o.production, "production", false, "ask for the name of the key, or of the owner, instead of y")
	set.BoolVar(&o.yes, "yes", false, "do not ask")
	set.StringVar(&o.token, "token", "", "release only if this is the `holder`, by its token or name; of several holders, only this one")
	set.BoolVar(&o.dryRun, "dry-run", false, "print the exact command for redis-cli and change nothing")
	set.BoolVar(&o.json, "json", false, "print one JSON document; errors are JSON, too")
	set.StringVar(&o.auditLog, "audit-log", "", auditUsage)
	set.DurationVar(&o.giveTTL, "give-ttl", 0, "instead of a release, give a lock without TTL this `time` to live")
	o.given = set.Changed
	return set
}

// releaseRun is a run of release.
type releaseRun struct {
	*program
	reading
	options releaseOptions
}

func (p *program) releaseCommand() *cobra.Command {
	var k keyFlags
	r := &releaseRun{program: p}
	s, o := &r.selection, &r.options
	r.may = &o.writeFlags
	return p.complete(&cobra.Command{
		Use:   "release {KEY | --owner NAME} [flags]",
		Short: "Release exactly one hold of another client, or all of its locks",
		Long: `Ends the hold of a lock. The script checks on the server that the lock has not
changed since locktop read it. It frees the lock as the lock's library does, and
wakes its waiters. The holder is not stopped: it continues until it checks its lock.

With --owner, it scans the keyspace and asks one question for all locks of this holder. It
compares each lock again as for a single one: a lock that has changed hands stays as it is.

locktop writes every action, before and after, to an audit log:
$XDG_STATE_HOME/locktop/audit.jsonl or ~/.local/state/locktop/audit.jsonl, or where
--audit-log says. If the log cannot be written, locktop changes nothing.`,
		Example: `  locktop release job:nightly --dry-run                    the command, for somebody who may
  locktop release job:nightly --write --give-ttl 1m        the gentler way
  locktop release --owner worker-7 --write                 all locks of a dead worker
  locktop release lock:orders:7 --write --token 5d2e9a14-7c3b-4f6a-9e81-0b2c4d6e8f10 --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("owner") {
				return k.take(cmd, args)
			}
			if len(args) > 0 || cmd.Flags().Changed("key-b64") || o.token != "" || s.owner == "" {
				return usageErrorf("", "--owner takes the name of a holder, and excludes KEY, --key-b64 and --token")
			}
			return nil
		},
	}, &r.reading, func() error {
		r.flags.PreferReplica = false // what will be changed is read where it is changed
		return cmp.Or(o.check(s.owner != ""), o.writeFlags.check(&r.flags))
	}, func(ctx context.Context, _ *reading, _ []string) error {
		if master := r.target.Master(ctx); master != "" {
			return usageErrorf("", "nothing was changed: %s is a replica; use the address of its master, %s", r.target.Title, master)
		}
		if s.owner != "" {
			return r.releaseOwner(ctx)
		}
		return r.release(ctx, k.key)
	}, k.flags(), o.flags())
}

// release acts on the lock under a key.
func (r *releaseRun) release(ctx context.Context, key string) error {
	o := &r.options
	asks := o.write && !o.yes && isTerminal(r.in)
	g, seen, err := r.inspectLock(ctx, r.target, &r.selection, key, repeated{30, 100 * time.Millisecond, func(l *keyspace.Lock, now time.Time) bool {
		left, expires := l.TTL(now)
		return !asks || !expires || left >= time.Minute || l.Renewals >= 2 // 3 s show no slower renewals
	}})
	if err != nil {
		return err
	}
	if r.flags.AllDatabases() && len(g.Locks) > 1 {
		return usageErrorf("choose one with -n", "%s is in databases %s", render.ShortKey(key), g.whichDatabases())
	}
	if seen, err = o.selectHolder(seen); err != nil {
		return err
	}
	if o.action() == keyspace.Expire && !seen.Expires.IsZero() {
		return &exitError{code: exitChanged, err: fmt.Errorf("nothing was changed: %s has a deadline already, in %s", render.ShortKey(key), render.Left(seen, g.At)),
			hint: "--give-ttl is for locks that never expire"}
	}
	command, err := r.command(seen)
	if err != nil {
		return err
	}
	document := o.document(g.Snapshot, []keyspace.Lock{seen})
	if o.dryRun {
		r.notes.note("%s", o.consequence(seen, g.At))
		document.Locks[0].RedisCommand = command
		return r.program.printedText("the command", o.json, document, command+"\n")
	}
	log, err := r.permit(o.consequence(seen, g.At), seen.Key, "add --write to release the lock, or --dry-run to print the command")
	if err != nil {
		return err
	}
	defer log.close()
	text := render.ShortKey(seen.Key) + " is released\n"
	if o.action() == keyspace.Expire {
		text = fmt.Sprintf("%s expires in %s\n", render.ShortKey(seen.Key), humanize.Setting(o.giveTTL))
	}
	if err = r.execute(ctx, executorOf(r.target, log, &r.selection), seen, &document.Locks[0]); err != nil {
		text = ""
	}
	return errors.Join(errorOf(err), r.program.printedText("the outcome", o.json, document, text))
}

// command returns the exact command of redis-cli for a lock.
func (r *releaseRun) command(l keyspace.Lock) (string, error) {
	command, err := keyspace.ExactCommand(r.selection.formats(), r.options.action(), l, r.options.giveTTL, r.target.RedisCLI()...)
	return command, errorOf(err)
}

// jsonRelease is the output of `release --json`.
type jsonRelease struct {
	render.Head
	Action keyspace.Action `json:"action"`
	TTLMS  int64           `json:"ttl_ms,omitzero"` // that the action gives
	Owner  string          `json:"owner,omitzero"`  // of --owner
	Locks  []jsonReleased  `json:"locks"`
}

// jsonReleased is a lock on which release acts, as it was seen before.
type jsonReleased struct {
	render.LockID
	Format       string           `json:"format"`
	Holders      []render.Holder  `json:"holders"`
	Outcome      keyspace.Outcome `json:"outcome,omitzero"`           // absent: nothing was sent
	Error        string           `json:"error,omitzero"`             // why it is not done
	RedisCommand string           `json:"redis_cli_command,omitzero"` // of --dry-run
}

// document returns the output before an action on locks of a snapshot.
func (o *releaseOptions) document(s keyspace.Snapshot, locks []keyspace.Lock) jsonRelease {
	return jsonRelease{Head: render.HeadOf(s), Action: o.action(), TTLMS: o.giveTTL.Milliseconds(), Locks: render.Each(locks, func(l keyspace.Lock) jsonReleased {
		return jsonReleased{LockID: render.LockIDOf(l.ID()), Format: l.Format,
			Holders: render.Each(l.Holders, func(h keyspace.Holder) render.Holder { return render.HolderOf(h, s.At) })}
	})}
}

// selectHolder returns the lock with only the holder that the flags select.
func (o *releaseOptions) selectHolder(seen keyspace.Lock) (keyspace.Lock, error) {
	if len(seen.Holders) == 0 {
		return seen, errorOf(&keyspace.ChangedError{Key: seen.Key})
	}
	if o.token == "" {
		return seen, nil
	}
	one, held := seen.Still(slices.DeleteFunc(slices.Clone(seen.Holders), func(h keyspace.Holder) bool { return h.ID != o.token && h.Label != o.token }))
	if !held {
		return seen, errorOf(&keyspace.ChangedError{Key: seen.Key, Now: &seen})
	}
	return one, nil
}

// action returns the action of the flags.
func (o *releaseOptions) action() keyspace.Action {
	if o.giveTTL > 0 {
		return keyspace.Expire
	}
	return keyspace.ForceRelease
}

// execute acts on a lock, and sets the outcome. Without an answer it warns of that: the outcome is what a recheck finds within
// the timeout of the target.
func (r *releaseRun) execute(ctx context.Context, e *release.Executor, seen keyspace.Lock, j *jsonReleased) error {
	done, err := e.Act(ctx, r.options.action(), seen, r.options.giveTTL)
	if done.Outcome == keyspace.Unanswered {
		r.notes.warning("%v", err)
		ctx, cancel := context.WithTimeout(ctx, r.target.Timeout)
		defer cancel()
		found, text, lost := e.Recheck(ctx, done, seen)
		if lost != nil {
			found, text = keyspace.Unanswered, "it is still not known: "+lost.Error()
		}
		done.Outcome = found
		err = &exitError{code: exitFailure, err: fmt.Errorf("%s: %s", render.ShortKey(seen.Key), text), hint: "locktop inspect shows it"}
	}
	if j.Outcome = done.Outcome; err != nil {
		j.Error = render.Text(err.Error())
	}
	return err
}

// consequence describes what the action will change.
func (o *releaseOptions) consequence(seen keyspace.Lock, at time.Time) string {
	who := render.HeldBy(seen, at)
	if votes := seen.VotesText(); votes != "" {
		who += "; " + votes
	}
	return fmt.Sprintf("%s is %s; %s; %s", render.ShortKey(seen.Key), who, next([]keyspace.Lock{seen}, "it"),
		seen.Consequence(o.action(), o.giveTTL, "its holder", at, at))
}

// next says which waiters may get the released locks, them.
func next(locks []keyspace.Lock, them string) string {
	waiters, known := 0, true
	for i := range locks {
		waiters += locks[i].WaiterCount()
		known = known && render.ShowsWaiters(locks[i].Format)
	}
	switch {
	case waiters > 0:
		return humanize.Plural(waiters, "waiter") + " may get " + them + " next"
	case known:
		return "no waiters"
	default:
		return "waiters are not known"
	}
}

// permit opens the audit log if the flags permit a change with a consequence, and the user
// confirms it. hint says how the flags permit it.
func (r *releaseRun) permit(consequence, name, hint string) (*auditLog, error) {
	if !r.options.write {
		r.notes.note("%s", consequence)
		return nil, usageErrorf(hint, "nothing was changed: release needs --write")
	}
	if err := r.confirm(consequence, name); err != nil {
		return nil, err
	}
	log, err := openAudit(r.options.auditLog)
	if err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	return log, nil
}

// confirm asks the user to type y or, with production, a name. Every other answer,
// also an empty line, is an error.
func (r *releaseRun) confirm(consequence, name string) error {
	o := &r.options
	if o.yes {
		return nil
	}
	if !isTerminal(r.in) {
		hint := "use --yes to answer in advance"
		if o.production {
			hint = "use --yes with --token to answer in advance"
		}
		return usageErrorf(hint, "nothing was changed: there is no terminal for the question")
	}
	yes := "y"
	if o.production {
		yes = widget.Plain(name)
	}
	fmt.Fprintf(r.notes.to, "%s\nType %s to confirm, anything else to cancel: ", consequence, yes)
	answer, err := bufio.NewReader(r.in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != yes {
		return &exitError{code: exitFailure, err: fmt.Errorf("nothing was changed: the answer was not %s", yes)}
	}
	return nil
}

// errorOf adds exit codes and hints to the errors of actions.
func errorOf(err error) error {
	switch {
	case errors.Is(err, keyspace.ErrChanged):
		return &exitError{code: exitChanged, err: err, hint: "read the lock again before you decide"}
	case errors.Is(err, keyspace.ErrNotSupported):
		return &exitError{code: exitFailure, err: err}
	case errors.Is(err, release.ErrReadOnly):
		return &exitError{code: exitFailure, err: err, hint: "release it on the master: use its address, --sentinel or --cluster"}
	case errors.Is(err, release.ErrNoPermission):
		return &exitError{code: exitFailure, err: err, hint: "docs/operators.md has the permissions for each kind of action"}
	default:
		return err
	}
}

// check returns an error for flags that contradict each other. byOwner means that --owner names
// the holder.
func (o *releaseOptions) check(byOwner bool) error {
	switch {
	case o.given("give-ttl") && o.giveTTL < time.Millisecond:
		return usageErrorf("like --give-ttl 30s", "--give-ttl must be at least 1ms")
	case o.given("token") && o.token == "":
		return usageErrorf("is its shell variable set?", "--token is empty")
	case o.production && o.yes && o.token == "" && !byOwner:
		return usageErrorf("", "on production, --yes needs --token, which names the holder")
	case o.dryRun && o.write:
		return usageErrorf("", "--dry-run and --write contradict each other")
	}
	return nil
}

// writeFlags holds the flags that permit actions on locks.
type writeFlags struct {
	write      bool
	production bool
	auditLog   string // see openAudit
	readOnly   string // name of a context that permits no action
}

func (r *writeFlags) flags() *pflag.FlagSet {
	set := flagSection("Acting")
	set.BoolVar(&r.write, "write", false, "allow x to release locks, after a question; every action goes to an audit log")
	set.BoolVar(&r.production, "production", false, "ask for the name of the lock before each action")
	set.StringVar(&r.auditLog, "audit-log", "", auditUsage)
	return set
}

// check returns an error for --write with a read-only context, and with all databases, where one
// name may stand for several keys.
func (r *writeFlags) check(c *connect.Flags) error {
	switch {
	case r.write && r.readOnly != "":
		return usageErrorf("", "the context %s is read-only: --write is refused", r.readOnly)
	case r.write && c.AllDatabases():
		return usageErrorf("choose one with -n", "--write acts on the locks of one database")
	}
	return nil
}
