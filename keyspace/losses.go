package keyspace

import (
	"fmt"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Loss is a hold that a failover or a restart lost before its deadline: its client may still work.
type Loss struct {
	Lock   ID
	Holder Holder
	At     time.Time // when the loss was read
}

// locksLost finds locks that were lost, until their deadlines are over or their holders have them again.
func locksLost(s Snapshot, now time.Time) string {
	if len(s.Losses) == 0 {
		return ""
	}
	next := make(map[ID]*Lock, len(s.Losses))
	for i := range s.Losses {
		next[s.Losses[i].Lock.OnAnyNode()] = &Lock{}
	}
	for _, l := range s.Locks {
		if id := l.ID().OnAnyNode(); next[id] != nil {
			next[id] = l
		}
	}
	var all []string
	for _, one := range s.Losses {
		taken := next[one.Lock.OnAnyNode()]
		left := one.Holder.Expires.Sub(now)
		if _, again := taken.Holder(one.Holder.ID); again || left <= 0 && !one.Holder.Expires.IsZero() {
			continue
		}
		text := fmt.Sprintf("%s of %s, lost %s ago", one.Lock.Key, one.Holder.Name(), humanize.Duration(now.Sub(one.At)))
		if left > 0 {
			text += fmt.Sprintf(" with %s left", humanize.Duration(left))
		}
		if len(taken.Holders) > 0 {
			text += ", taken by " + taken.Holders[0].Name()
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return ""
	}
	const shown = 3
	more := ""
	if n := len(all) - shown; n > 0 {
		all, more = all[:shown], fmt.Sprintf("; and %d more", n)
	}
	return fmt.Sprintf("A failover or a restart lost locks whose holders may still work: %s%s.", strings.Join(all, "; "), more)
}
