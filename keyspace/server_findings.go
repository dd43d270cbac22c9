package keyspace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// clockApart is the clock difference that affects locks.
const clockApart = 500 * time.Millisecond

// ServerFindings lists the problems of the servers of a snapshot that endanger all
// their locks, and the orders of locks that can deadlock. Only these have a lock; the text of
// the others names the server.
func ServerFindings(s Snapshot) (all []Finding) {
	for _, n := range s.Nodes {
		all = appendFindings(all, nodeRules(), n, Finding{Server: n.Addr}, s.At)
	}
	for _, server := range serversOf(s) {
		all = appendFindings(all, serverRules(), server, Finding{Server: server.Addr}, s.At)
	}
	all = appendFindings(all, snapshotRules(), s, Finding{}, s.At)
	for _, i := range s.Inversions {
		all = append(all, i.Finding())
	}
	return all
}

// serversOf lists the servers of a snapshot.
func serversOf(s Snapshot) []Server {
	var all []Server
	for _, n := range s.Nodes {
		if n.Up {
			all = append(all, n.Server)
		}
	}
	if len(all) == 0 {
		return []Server{s.Server}
	}
	return all
}

// nodeRules lists the rules for a server, also if it does not answer.
func nodeRules() []rule[Node] {
	return []rule[Node]{
		{nodeMissing, Problem{"node-missing", Critical, finding, "a server cannot be read",
			"Check that the server runs and can be reached from here. Until it answers, the snapshot is incomplete."}},
		{locksUnread, Problem{"locks-unread", Warning, finding, "the server refuses to show keys that may be locks",
			"Grant the permission: docs/operators.md says what each one is for. Or read only the keys that this user may read: {match}."}},
	}
}

// serverRules lists the rules for a server that answers.
func serverRules() []rule[Server] {
	return []rule[Server]{
		{partlySeen, Problem{"part-of-cluster", Warning, finding, "the server is part of a cluster, whose other nodes are not read",
			"Read all of its nodes: {cluster}."}},
		{masterLost, Problem{"master-link-down", Critical, finding, "the server is a replica that has lost its master: its locks are old",
			"Read the master, or the server that has replaced it: a lock shown here may be free there, or have another holder."}},
		{evictable, Problem{"evictable", Warning, finding, "the server evicts keys, and with them locks, when its memory is full",
			"Keep locks on a separate server with maxmemory-policy noeviction."}},
		{failoverLosesLocks, Problem{"failover-loses-locks", Info, finding, "the server confirms a lock before a replica has it",
			"Make clients wait for replicas (WAIT), set min-replicas-to-write, and check fencing tokens where two holders would do damage."}},
	}
}

// snapshotRules lists the rules for all servers together, and for the watch.
func snapshotRules() []rule[Snapshot] {
	return []rule[Snapshot]{
		{locksLost, Problem{"locks-lost", Critical, finding, "a failover or a restart has lost locks before their deadlines",
			"Find out whether the holders still work, and stop them: each lock is free for another client. Check what two holders may have done at the same time."}},
		{clusterRefuses, Problem{"cluster-down", Critical, finding, "the cluster refuses its clients",
			"Bring back the masters that do not answer, or promote their replicas: until all slots have a master, no client can acquire, renew or release a lock, and holds end at their deadlines."}},
		{restartedEmpty, Problem{"restarted-empty", Critical, finding, "a server of a Redlock has lost its locks in a restart",
			"Keep it out of the Redlock for the longest TTL since its restart, or let it write each change to its disk first (appendfsync always)."}},
		{clocksApart, Problem{"clock-skew", Warning, finding, "the clocks of two servers differ by more than 500 ms",
			"Synchronize the clocks of all servers with the same source: a Redlock relies on them."}},
		{clockWrong, Problem{"clock-skew", Info, finding, "the clocks of the server and of this machine differ by more than 500 ms",
			"Compare both with a third clock. Locks whose deadlines clients compute on their own clocks last too long or too short."}},
		{noNotifyRight, Problem{"no-notify-right", Info, finding, "the user may not use client tracking, so short holds may be missed",
			"Grant it +client|tracking +hello (ACL SETUSER): these commands write nothing."}},
	}
}

// nodeMissing finds servers that do not answer.
func nodeMissing(n Node, _ time.Time) string {
	if n.Up || n.clusterDown() {
		return ""
	}
	return fmt.Sprintf("%s cannot be read: its locks and their holders are unknown (%s).", n.Addr, n.Error)
}

// clusterDown reports whether the server answers, and refuses its clients for its cluster.
func (n Node) clusterDown() bool {
	return n.ClusterDown && n.Up || strings.Contains(n.Error, "CLUSTERDOWN")
}

// clusterRefuses finds a cluster whose nodes refuse their clients because other nodes have failed.
func clusterRefuses(s Snapshot, _ time.Time) string {
	var by, missing []string
	for _, n := range s.Nodes {
		switch {
		case n.clusterDown():
			by = append(by, n.Addr)
		case !n.Up:
			missing = append(missing, n.Addr)
		}
	}
	if len(by) == 0 {
		return ""
	}
	text := fmt.Sprintf("The cluster refuses its clients (CLUSTERDOWN at %s)", strings.Join(by, ", "))
	if len(missing) > 0 {
		text += ": " + strings.Join(missing, ", ") + " cannot be read"
	}
	return text + "."
}

// locksUnread finds servers that refuse to show keys to this user.
func locksUnread(n Node, _ time.Time) string {
	if n.Unread == "" {
		return ""
	}
	return fmt.Sprintf("Locks and waiters on %s may be missing: %s.", n.Addr, n.Unread)
}

// Doubts lists why locks of the server may be missing from a snapshot, or may not be as it shows them, one clause
// each. A snapshot with doubts is not complete.
func (n Node) Doubts() (all []string) {
	for _, text := range []string{masterLost(n.Server, time.Time{}), locksUnread(n, time.Time{})} {
		if text != "" {
			all = append(all, strings.TrimSuffix(text, "."))
		}
	}
	return all
}

// partlySeen finds cluster nodes whose other nodes are not scanned.
func partlySeen(s Server, _ time.Time) string {
	if !s.PartialCluster {
		return ""
	}
	return s.Addr + " is part of a cluster and shows only the locks in its own slots."
}

// masterLost finds replicas without a connection to their master: their data is old.
func masterLost(s Server, _ time.Time) string {
	if !s.MasterDown {
		return ""
	}
	return fmt.Sprintf("%s is a replica that has lost its master %s: its locks are as they were at that time.", s.Addr, s.Master)
}

// evictable finds servers that evict locks when memory is full.
func evictable(s Server, _ time.Time) string {
	if s.MaxMemory == 0 || s.Policy == "" || s.Policy == "noeviction" {
		return ""
	}
	which := "any lock"
	switch {
	case s.Policy == "volatile-ttl":
		which = "locks before anything else, because they expire soonest"
	case strings.HasPrefix(s.Policy, "volatile-"):
		which = "any lock that expires"
	}
	return fmt.Sprintf("%s evicts keys when its memory is full (maxmemory-policy %s): %s.", s.Addr, s.Policy, which)
}

// failoverLosesLocks finds masters that confirm a lock before a replica has it.
func failoverLosesLocks(s Server, _ time.Time) string {
	switch {
	case s.Role == "master" && s.HadReplicas:
		return fmt.Sprintf("%s has lost its last replica: if it fails, its locks are lost.", s.Addr)
	case s.Role != "master" || s.Replicas == 0 || s.MinReplicas:
		return ""
	}
	return fmt.Sprintf("%s has %s, and confirms a lock before it is copied: a failover may lose the latest locks.", s.Addr, humanize.Plural(s.Replicas, "replica"))
}

// clocksApart finds servers with different clocks, which count the deadlines of a Redlock
// differently.
func clocksApart(s Snapshot, _ time.Time) string {
	byClock := func(a, b Server) int { return int((a.Skew - b.Skew).Milliseconds()) }
	slow, fast := slices.MinFunc(serversOf(s), byClock), slices.MaxFunc(serversOf(s), byClock)
	if fast.Skew-slow.Skew <= clockApart {
		return ""
	}
	return fmt.Sprintf("The clock of %s is %s ahead of that of %s.", fast.Addr, humanize.Duration(fast.Skew-slow.Skew), slow.Addr)
}

// clockWrong finds a single server whose clock is not that of this machine.
func clockWrong(s Snapshot, _ time.Time) string {
	all := serversOf(s)
	if len(all) > 1 || all[0].Skew.Abs() <= clockApart {
		return ""
	}
	return fmt.Sprintf("The clocks of %s and of this machine differ by %s.", all[0].Addr, humanize.Duration(all[0].Skew.Abs()))
}

// noNotifyRight reports that the user has no permission for change messages.
func noNotifyRight(s Snapshot, _ time.Time) string {
	refused := slices.ContainsFunc(s.Watch.Limitations, func(b string) bool { return strings.Contains(b, "NOPERM") })
	if s.Watch.Mode != Polling || !refused {
		return ""
	}
	return "This user has no permission for client tracking: short holds may be missed."
}

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
