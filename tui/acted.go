package tui

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
)

// acted is the result of an action on a lock.
type acted struct {
	lock   keyspace.Lock
	record keyspace.AuditRecord
	err    error
}

// actedMsg reports the results of an action.
type actedMsg struct {
	pendingAction
	executor Executor
	results  []acted
}

// onActed reports the results of an action, and requests a snapshot immediately. Of the errors it
// reports the first. What is not known stays in the last line until a key.
func (a *app) onActed(m actedMsg) tea.Cmd {
	a.refresher.next = a.now
	var unknown, failed []acted
	for _, r := range m.results {
		if r.record.Outcome == keyspace.Unanswered {
			unknown = append(unknown, r)
		} else if r.err != nil {
			failed = append(failed, r)
		}
	}
	bad := slices.Concat(unknown, failed)
	if len(bad) == 0 {
		return a.notify(m.act.Did(m.ttl) + " " + a.describe(m.locks))
	}
	text := a.privacy.key(bad[0].lock.Key) + ": " + cmp.Or(bad[0].record.Shortfall(), shortError(bad[0].err))
	if changed, ok := errors.AsType[*keyspace.ChangedError](bad[0].err); ok {
		text = a.redactText(bad[0].lock.ID(), changed.Error())
	}
	if n := len(m.results); n > 1 {
		text = fmt.Sprintf("%d done, %d failed, %d unknown; %s", n-len(bad), len(failed), len(unknown), text)
	}
	a.reject(text)
	var rechecks []tea.Cmd
	for _, r := range unknown {
		a.notice.until = time.Time{}
		rechecks = append(rechecks, a.recheck(m.executor, r))
	}
	return tea.Batch(rechecks...)
}
