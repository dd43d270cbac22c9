package lock_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

// A user with the permissions that the documentation lists can use every kind of lock, and wait for
// it. Without PUBSUB NUMSUB it can, too.
func TestTheDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	page := string(check.Must(os.ReadFile("../docs/library.md"))(t))
	line := regexp.MustCompile(`(?m)^ACL SETUSER app reset on ">CHANGE-ME" (.*)$`).FindStringSubmatch(page)
	check.Require(t, line != nil, "docs/library.md has no ACL line")
	rules := strings.Fields(strings.ReplaceAll(line[1], `"`, ""))
	for name, also := range map[string][]string{"documented": nil, "without PUBSUB": {"-pubsub"}} {
		sub(t, name, onRedis, func(r *rig) {
			granted := slices.Concat(rules, also)
			if strings.Contains(r.rdb.Info(ctx, "server").Val(), "redis_version:6.0") {
				granted = slices.DeleteFunc(granted, func(rule string) bool { return rule == "resetchannels" || rule[0] == '&' })
			}
			c, other := r.user(granted...), r.user(granted...)
			for kind, l := range everyKind(c, "orders", lock.Options{TTL: time.Minute}) {
				lease := r.locked(l)
				next := lockAsync(ctx, kinds[kind](other, "orders-"+kind, lock.Options{TTL: time.Minute}))
				switch kind {
				case "reader": // shares the lock
				case "writer": // claims to be the next one
					r.claimed("orders-writer")
				case "fair":
					r.queued("orders-fair", 1)
				default:
					r.until("a registered process", func() bool { return r.rdb.ZCard(ctx, "{orders-"+kind+"}:waiters").Val() == 1 })
				}
				r.must(lease.Extend(ctx, time.Minute))
				r.must(lease.Unlock(ctx))
				r.must(r.won(next).Unlock(ctx))
			}
			fenced := r.locked(c.Mutex("orders", lock.Options{Fence: true}))
			check.Equal(r, fenceOf(fenced), int64(1), "fence")
			r.must(fenced.Unlock(ctx))
			s := c.Semaphore("orders-limited", 1, lock.Options{})
			r.must(s.SetLimit(ctx, 2))
			r.counts(s, 2, 0)
			for kind, look := range lookups(c, "orders-free", lock.Options{}) {
				held, err := look.Holder(ctx)
				check.True(r, held == nil && err == nil, "Holder of a free %s: %v, %v", kind, held, err)
			}
			if also == nil {
				check.Contains(r, r.rdb.Info(ctx, "commandstats").Val(), "cmdstat_pubsub", "a release asks for the subscribers")
				check.Equal(r, fmt.Sprint(r.rdb.Do(ctx, "ACL", "LOG").Val()), "[]", "refused commands")
			}
		})
	}
}
