package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
)

// unread counts the keys that may be locks, or belong to one, and could not be read, by the reason. The text of it is
// the only source of what outputs say of such keys: see [keyspace.Node.Doubts].
type unread map[string]int

// Reasons that are not those of one type of keys.
const (
	hiddenKey = "may not be read by this user"                                // with any command
	movingKey = "could not be read while moving between nodes of the cluster" // no node returned it
)

// add adds other counts.
func (u unread) add(other unread) {
	for why, n := range other {
		u[why] += n
	}
}

// String returns one clause for each reason; "" = all keys were read.
func (u unread) String() string {
	var all []string
	for _, why := range slices.Sorted(maps.Keys(u)) {
		if u[why] > 0 {
			all = append(all, humanize.Plural(u[why], "key")+" "+why)
		}
	}
	return strings.Join(all, ", and ")
}

// unreadKeys counts the keys of the last call that could not be read.
func (r *reader) unreadKeys() unread {
	all := make(unread)
	for _, why := range r.unread {
		all[why]++
	}
	return all
}

// whyUnread returns the reason why the key could not be read.
func (q keyRead) whyUnread() string {
	cmd := redis.Cmder(q.expiry)
	if q.size != nil && isCommandDenied(q.size.Err()) {
		cmd = q.size
	}
	if q.value != nil && isCommandDenied(q.value.Err()) {
		cmd = q.value
	}
	if !isCommandDenied(cmd.Err()) {
		return hiddenKey
	}
	return fmt.Sprintf("of type %s cannot be read, because %s", q.typ, deniedBecause(isUnknownCommand(cmd.Err()), commandName(cmd)))
}

// smallSizes are the sizes up to which GET and HGETALL may take the place of a command that reads a part of a value.
var smallSizes = map[string]int64{"string": valueBytes, "hash": maxElements}

// substituted reports whether GET or HGETALL must read the keys of a type.
func (r *reader) substituted(typ string) bool {
	denied := r.conn.denied
	return typ == "string" && denied.has("getrange") && !denied.has("get") || typ == "hash" && denied.has("hscan") && !denied.has("hgetall")
}
