package inspect

import (
	"fmt"
	"strings"
	"time"
)

// subscription is a channel or pattern with its handler.
type subscription struct {
	name      string
	pattern   bool
	onMessage func(c *changes, channel, payload string)
}

// releaseSubscriptions returns the subscriptions to the release channels of the formats
// and to evictions.
func releaseSubscriptions(formats formatSet, db int) []subscription {
	evictions := subscription{name: fmt.Sprintf("__keyevent@%d__:evicted", db), onMessage: func(c *changes, _, key string) {
		c.add(key, change{since: time.Now(), evicted: true})
	}}
	all := []subscription{evictions}
	for _, f := range formats {
		if f.ReleaseChannel == nil {
			continue
		}
		key, toWaiter := f.ReleaseChannel.Key, f.ReleaseChannel.ToWaiter
		all = append(all, subscription{name: f.ReleaseChannel.Pattern, pattern: true, onMessage: func(c *changes, channel, payload string) {
			if k, ok := key(channel, payload); ok {
				now := time.Now()
				c.add(k, change{since: now, released: now, toWaiter: toWaiter != nil && toWaiter(channel)})
			}
		}})
	}
	return all
}

// keyspaceEvents returns the subscription to all keyspace notifications of a database.
func keyspaceEvents(db int) subscription {
	// The documented ACL for read-only users permits this pattern.
	return subscription{name: "__keyevent@*__:*", pattern: true, onMessage: func(c *changes, channel, key string) {
		prefix := fmt.Sprintf("__keyevent@%d__:", db)
		if what, ok := strings.CutPrefix(channel, prefix); ok {
			c.add(key, change{since: time.Now(), evicted: what == "evicted"})
		}
	}}
}
