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
// their locks. Such a finding has no lock; its text names the server.
func ServerFindings(s Snapshot) []Finding {
	all := nodesMissing(s.Nodes)
	for _, server := range serversOf(s) {
		all = append(all, partlySeen(server)...)
		all = append(all, masterLost(server)...)
		all = append(all, evictable(server)...)
		all = append(all, failoverLosesLocks(server)...)
	}
	all = append(all, clockSkew(serversOf(s))...)
	return append(all, noNotifyRight(s.Watch)...)
}

// serverFindingKinds lists the kinds of the findings of ServerFindings.
func serverFindingKinds() []FindingKind {
	return []FindingKind{
		{"node-missing", Critical}, {"part-of-cluster", Warning}, {"master-link-down", Critical}, {"evictable", Warning},
		{"failover-loses-locks", Info}, {"clock-skew", Warning}, {"clock-skew", Info}, {"no-notify-right", Info},
	}
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

// nodesMissing finds servers that do not answer.
func nodesMissing(nodes []Node) (all []Finding) {
	for _, n := range nodes {
		if n.Up {
			continue
		}
		all = append(all, Finding{
			ID: "node-missing", Severity: Critical, Server: n.Addr,
			Text:   fmt.Sprintf("%s cannot be read: its locks and their holders are unknown (%s).", n.Addr, n.Error),
			Remedy: "Check that the server runs and can be reached from here. Until it answers, the snapshot is incomplete.",
		})
	}
	return all
}

// partlySeen finds cluster nodes whose other nodes are not scanned.
func partlySeen(s Server) []Finding {
	if !s.PartialCluster {
		return nil
	}
	return []Finding{{
		ID: "part-of-cluster", Severity: Warning, Server: s.Addr,
		Text:   fmt.Sprintf("%s is part of a cluster and shows only the locks in its own slots.", s.Addr),
		Remedy: "Add --cluster to see all of them.",
	}}
}

// masterLost finds replicas without a connection to their master: their data is old.
func masterLost(s Server) []Finding {
	if !s.MasterDown {
		return nil
	}
	return []Finding{{
		ID: "master-link-down", Severity: Critical, Server: s.Addr,
		Text:   fmt.Sprintf("%s is a replica that has lost its master %s: its locks are as they were at that time.", s.Addr, s.Master),
		Remedy: "Read the master, or the server that has replaced it: a lock shown here may be free there, or have another holder.",
	}}
}

// evictable finds servers that evict locks when memory is full.
func evictable(s Server) []Finding {
	if s.MaxMemory == 0 || s.Policy == "" || s.Policy == "noeviction" {
		return nil
	}
	which := "any lock"
	switch {
	case s.Policy == "volatile-ttl":
		which = "locks before anything else, because they expire soonest"
	case strings.HasPrefix(s.Policy, "volatile-"):
		which = "any lock that expires"
	}
	return []Finding{{
		ID: "evictable", Severity: Warning, Server: s.Addr,
		Text:   fmt.Sprintf("%s evicts keys when its memory is full (maxmemory-policy %s): %s.", s.Addr, s.Policy, which),
		Remedy: "Keep locks on a separate server with maxmemory-policy noeviction.",
	}}
}

// failoverLosesLocks finds masters that confirm a lock before a replica has it.
func failoverLosesLocks(s Server) []Finding {
	if s.Role != "master" || s.Replicas == 0 || s.MinReplicas {
		return nil
	}
	return []Finding{{
		ID: "failover-loses-locks", Severity: Info, Server: s.Addr,
		Text:   fmt.Sprintf("%s has %s, and confirms a lock before it is copied: a failover may lose the latest locks.", s.Addr, humanize.Plural(s.Replicas, "replica")),
		Remedy: "Make clients wait for replicas (WAIT), set min-replicas-to-write, and check fencing tokens where two holders would do damage.",
	}}
}

// clockSkew finds servers with different clocks, which count the deadlines of a Redlock
// differently.
func clockSkew(all []Server) []Finding {
	byClock := func(a, b Server) int { return int((a.Skew - b.Skew).Milliseconds()) }
	slow, fast := slices.MinFunc(all, byClock), slices.MaxFunc(all, byClock)
	apart := fast.Skew - slow.Skew
	switch {
	case len(all) > 1 && apart > clockApart:
		return []Finding{{
			ID: "clock-skew", Severity: Warning,
			Text:   fmt.Sprintf("The clock of %s is %s ahead of that of %s.", fast.Addr, humanize.Duration(apart), slow.Addr),
			Remedy: "Synchronize the clocks of all servers with the same source: a Redlock relies on them.",
		}}
	case len(all) == 1 && fast.Skew.Abs() > clockApart:
		return []Finding{{
			ID: "clock-skew", Severity: Info,
			Text:   fmt.Sprintf("The clocks of %s and of this machine differ by %s.", fast.Addr, humanize.Duration(fast.Skew.Abs())),
			Remedy: "Compare both with a third clock. Locks whose deadlines clients compute on their own clocks last too long or too short.",
		}}
	}
	return nil
}

// noNotifyRight reports that the user has no permission for change messages.
func noNotifyRight(f WatchStatus) []Finding {
	refused := slices.ContainsFunc(f.Limitations, func(b string) bool { return strings.Contains(b, "NOPERM") })
	if f.Mode != Polling || !refused {
		return nil
	}
	return []Finding{{
		ID: "no-notify-right", Severity: Info,
		Text:   "This user has no permission for client tracking: short holds may be missed.",
		Remedy: "Grant it +client|tracking +hello (ACL SETUSER): these commands write nothing.",
	}}
}
