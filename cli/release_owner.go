package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"locktop/cli/render"
	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/release"
)

// releaseOwner acts on all locks of the holder of --owner, after one question.
func (r *releaseRun) releaseOwner(ctx context.Context) error {
	s, o := &r.selection, &r.options
	snap, err := s.scanOf(r.target, nil).Snapshot(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && len(snap.Locks) == 0 {
		return scanFailed(fmt.Errorf("scan %s: %w", r.target.Title, err))
	}
	if !snap.Complete {
		r.notes.warning("%s", incomplete(snap))
	}
	locks := s.locksOfOwner(snap, o.action())
	if len(locks) == 0 {
		what := "lock"
		if o.action() == keyspace.Expire {
			what = "lock without TTL"
		}
		return &exitError{code: exitNoLock, err: fmt.Errorf("%s has no %s", render.Text(s.owner), what), hint: "locktop list shows the owners"}
	}
	document := o.document(snap, locks)
	document.Owner = render.Text(s.owner)
	if o.dryRun {
		return r.printCommands(locks, document)
	}
	log, err := r.permit(o.consequenceForOwner(s.owner, locks), s.owner, "add --write to release the locks, or --dry-run to print the commands")
	if err != nil {
		return err
	}
	defer log.close()
	err = r.executeAll(ctx, executorOf(r.target, log, s), locks, document)
	if err == nil && !snap.Complete {
		return incomplete(snap)
	}
	return err
}

// locksOfOwner returns the selected locks of a snapshot with only the holds of the owner, without
// those that an action cannot change.
func (s *selection) locksOfOwner(snap keyspace.Snapshot, act keyspace.Action) []keyspace.Lock {
	var all []keyspace.Lock
	for _, l := range s.filter(snap).Locks {
		if act == keyspace.Expire && !l.Expires.IsZero() {
			continue
		}
		one := *l
		one.Holders = slices.DeleteFunc(slices.Clone(l.Holders), func(h keyspace.Holder) bool { return !s.owns(h) })
		all = append(all, one)
	}
	return all
}

// printCommands prints the exact command for each lock.
func (r *releaseRun) printCommands(locks []keyspace.Lock, d jsonRelease) error {
	lines := ""
	for i, l := range locks {
		command, err := r.command(l)
		if err != nil {
			return err
		}
		d.Locks[i].RedisCommand = command
		lines += command + "\n"
	}
	return r.program.printedText("the commands", r.options.json, d, lines)
}

// consequenceForOwner describes what the action will change.
func (o *releaseOptions) consequenceForOwner(owner string, locks []keyspace.Lock) string {
	text := fmt.Sprintf("%s holds %s: %s", render.Text(owner), humanize.Plural(len(locks), "lock"), firstKeys(locks))
	if o.action() == keyspace.Expire {
		return text + fmt.Sprintf("; they will expire after %s, even while it works: code that sets no TTL seldom renews one.", humanize.Setting(o.giveTTL))
	}
	late := ""
	if slices.ContainsFunc(locks, func(l keyspace.Lock) bool { return l.Unchecked }) {
		late = " " + keyspace.LateUnlock
	}
	return text + "; it is not notified and will still believe it holds them; " + next(locks, "them") + "." + late
}

// firstKeys lists the first three keys and the number of the others.
func firstKeys(locks []keyspace.Lock) string {
	const most = 3
	names := render.Each(locks[:min(most, len(locks))], func(l keyspace.Lock) string { return render.ShortKey(l.Key) })
	if rest := len(locks) - most; rest > 0 {
		names = append(names, humanize.Count(rest)+" more")
	}
	return strings.Join(names, ", ")
}

// executeAll acts on one lock after the other. It continues after an error, and reports the numbers
// of the locks that are as they were, and of those without an answer, with the first error.
func (r *releaseRun) executeAll(ctx context.Context, e *release.Executor, locks []keyspace.Lock, d jsonRelease) error {
	var refused, unknown []keyspace.Lock
	var failed []error
	done := 0
	for i, l := range locks {
		if ctx.Err() != nil {
			break
		}
		err := r.execute(ctx, e, l, &d.Locks[i])
		if err != nil {
			failed = append(failed, err)
		}
		switch d.Locks[i].Outcome {
		case keyspace.Done:
			done++
		case keyspace.Changed, keyspace.Failed, "":
			refused = append(refused, l)
		default:
			unknown = append(unknown, l)
		}
	}
	text := fmt.Sprintf("%s %s of %s of %s\n", r.options.action().Did(r.options.giveTTL), humanize.Count(done), humanize.Plural(len(locks), "lock"), d.Owner)
	if err := r.program.printedText("the outcome", r.options.json, d, text); err != nil {
		return err
	}
	if ctx.Err() != nil || len(failed) == 0 {
		return ctx.Err()
	}
	code, hint := exitChanged, "the audit log has a line for each"
	if i := slices.IndexFunc(failed, func(err error) bool { return !errors.Is(err, keyspace.ErrChanged) }); i >= 0 {
		f := asExitError(errorOf(failed[i]))
		code, failed[0] = f.code, f
		if f.hint != "" {
			hint = f.hint
		}
	}
	text = ""
	if len(refused) > 0 {
		text = fmt.Sprintf("%s left as they are: %s; ", humanize.Plural(len(refused), "lock"), firstKeys(refused))
	}
	if len(unknown) > 0 {
		text += fmt.Sprintf("%s without an answer: %s; ", humanize.Plural(len(unknown), "lock"), firstKeys(unknown))
	}
	return &exitError{code: code, err: fmt.Errorf("%s%w", text, failed[0]), hint: hint}
}
