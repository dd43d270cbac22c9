package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Snapshot is the set of all locks that were known at one moment. It is immutable: it
// may be kept, compared and shared between goroutines.
type Snapshot struct {
	At       time.Time `json:"at,omitzero"`       // on the server's clock
	Locks    []*Lock   `json:"locks,omitzero"`    // ordered by node, database, key; never changed
	Complete bool      `json:"complete,omitzero"` // all keys were scanned, and no server has doubts; see [Node.Doubts]
	Cost     Cost      `json:"cost,omitzero"`     // what this snapshot cost the server
	Server   Server    `json:"server,omitzero"`
	Nodes    []Node    `json:"nodes,omitzero"`    // the servers, in the order of their addresses
	Problems []string  `json:"problems,omitzero"` // what is missing and why, one clause each

	// Known only from watching; zero in a single scan.
	Watch   WatchStatus `json:"watch,omitzero"`   // how changes are detected
	Events  []Event     `json:"events,omitzero"`  // events since the previous snapshot, in order
	Notices []Notice    `json:"notices,omitzero"` // notices since the previous snapshot
	// EventsDropped is the number of events since the previous snapshot that are not in
	// Events, because there were too many.
	EventsDropped int64 `json:"-"`

	// Inversions are the locks that owners were seen to acquire in different orders.
	Inversions []Inversion `json:"-"`

	// Losses are the holds that a failover or a restart has lost, up to their deadlines.
	Losses []Loss `json:"-"`

	Moves *SlotMoves `json:"-"` // slots of a cluster node that moved during the scan; nil = none
	lost  lostVotes  // votes of a Redlock that its servers have lost since the previous snapshot
}

// CompareLocks orders locks as in a snapshot, like [ID.Compare], without copies.
func CompareLocks(a, b *Lock) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key))
}

// ClockAhead returns the server's clock minus the local clock. taken is when, on the local
// clock, the snapshot was taken. The snapshot of a Watcher may be older than that, so its
// difference is the one that the Watcher has measured.
func (s *Snapshot) ClockAhead(taken time.Time) time.Duration {
	if s.AnsweredAt().IsZero() {
		return s.At.Sub(taken)
	}
	return s.Server.Skew
}

// AnsweredAt returns when, on the local clock, each server that answers had answered:
// nothing in the snapshot is older. It is zero if no Watcher has read the servers.
func (s *Snapshot) AnsweredAt() (at time.Time) {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Up && (at.IsZero() || n.AnsweredAt.Before(at)) {
			at = n.AnsweredAt
		}
	}
	return at
}

// Scanned reports whether a scan of every server that answers has ended. The snapshot may still be incomplete.
func (s Snapshot) Scanned() bool {
	return s.Complete || len(s.Nodes) > 0 && !slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Up && !n.Scanned })
}

// SoFar says how far the first scan of every server is: so far, 11 % of the keys read. It is empty once it has ended.
func (s Snapshot) SoFar() string {
	switch {
	case s.Scanned():
		return ""
	case s.Cost.Keys <= 0: // DBSIZE is denied
		return "so far"
	}
	return fmt.Sprintf("so far, %d %% of the keys read", min(99, 100*s.Cost.Scanned/s.Cost.Keys))
}

// NotShown says how many keys may be locks and are not shown, because only a second sign would make
// them likely; "" = none was seen.
func (s Snapshot) NotShown() string {
	n, least := 0, ""
	for i := range s.Nodes {
		n += s.Nodes[i].Possible
		if s.Nodes[i].PossibleAtLeast {
			least = "at least "
		}
	}
	if n == 0 {
		return ""
	}
	return least + humanize.Plural(n, "possible lock") + " not shown"
}

// KeysKnown reports whether Keys is the number of its keys.
func (n *Node) KeysKnown() bool { return n.Keys > 0 || n.Scanned }

// SlotCount is the number of slots of a cluster.
const SlotCount = 16384

// SlotMoves are the slots from which keys may have arrived at a node, and left it.
type SlotMoves struct{ Came, Went [SlotCount]bool }

// WatchMode is how changes are detected.
type WatchMode string

// From the best to the worst.
const (
	Push          WatchMode = "push"    // the server sends the changed keys (client tracking)
	Notifications WatchMode = "notify"  // keyspace notifications, which an administrator has enabled
	Polling       WatchMode = "polling" // all known locks are read repeatedly
)

// WatchStatus says how changes are detected, and what cannot be detected.
type WatchStatus struct {
	Mode WatchMode `json:"mode,omitzero"`
	// Lag is the largest delay of recent changes, from the message to the read. With
	// polling it is the longest of the recent times from one read to the end of the next.
	Lag         time.Duration `json:"lag_ns,omitzero"`
	Limitations []string      `json:"limitations,omitzero"` // what cannot be seen and why, one sentence each
}

// and merges the status of two servers; the worse value wins.
func (s WatchStatus) and(other WatchStatus) WatchStatus {
	worse := map[WatchMode]int{Push: 1, Notifications: 2, Polling: 3}
	if worse[other.Mode] > worse[s.Mode] {
		s.Mode = other.Mode
	}
	s.Lag = max(s.Lag, other.Lag)
	s.Limitations = appendNew(slices.Clip(s.Limitations), other.Limitations...)
	return s
}

// Notice is an event of a server, or of the connection to it, in one sentence.
type Notice struct {
	At   time.Time  `json:"at,omitzero"` // on the local clock, because the server may not answer
	Kind NoticeKind `json:"kind,omitzero"`
	Node string     `json:"node,omitzero"`
	Text string     `json:"text,omitzero"`
	// Since is, for ServerLost and ServerBack, when the server answered last before it was
	// lost, on the local clock; zero = unknown.
	Since time.Time `json:"since,omitzero"`
	// Change is, for ServerBack, what happened to the server meanwhile: ServerRestarted or
	// ServerFailover; empty: nothing.
	Change NoticeKind `json:"change,omitzero"`
}

// NoticeKind is the kind of a notice.
type NoticeKind string

// Kinds of notices.
const (
	ServerLost       NoticeKind = "lost"       // the server does not answer; reads are retried
	ServerBack       NoticeKind = "back"       // the server answers again
	ServerRestarted  NoticeKind = "restarted"  // the server is a new process
	ServerFailover   NoticeKind = "failover"   // another server has taken over
	ServerFlushed    NoticeKind = "flushed"    // a database was emptied
	RightsChanged    NoticeKind = "rights"     // a permission was lost or restored
	WatchModeChanged NoticeKind = "watch-mode" // changes are detected in another way
)

// Cost is what reading has cost the server.
type Cost struct {
	Scanned    int64         `json:"scanned_count,omitzero"` // keys visited by the pass
	Keys       int64         `json:"key_count,omitzero"`     // keys in the scanned databases (DBSIZE), for progress
	Commands   int64         `json:"command_count,omitzero"` // commands sent
	WaitTime   time.Duration `json:"wait_ns,omitzero"`       // time spent waiting for replies
	ServerTime time.Duration `json:"server_ns,omitzero"`     // time that the server was busy, on its own clock
	OwnTime    time.Duration `json:"-"`                      // time that locktop worked on a snapshot of watched locks, without waiting
}

// Add adds the commands and times of other.
func (c *Cost) Add(other Cost) {
	c.Commands += other.Commands
	c.WaitTime += other.WaitTime
	c.ServerTime += other.ServerTime
	c.OwnTime += other.OwnTime
}

// Node is one server of a snapshot.
type Node struct {
	Server
	Up      bool          `json:"up,omitzero"`         // it answers
	Error   string        `json:"error,omitzero"`      // the error if it does not answer
	Ping    time.Duration `json:"ping_ns,omitzero"`    // network round-trip time
	Keys    int64         `json:"key_count,omitzero"`  // keys in the scanned databases
	Locks   int           `json:"lock_count,omitzero"` // locks found on it
	Scanned bool          `json:"scanned,omitzero"`    // all of its keys were scanned
	// Possible is the number of keys that may be locks and are not in the snapshot: they are below
	// the confidence that was asked for. PossibleAtLeast says that not all keys were looked at.
	Possible        int    `json:"possible_count,omitzero"`
	PossibleAtLeast bool   `json:"possible_at_least,omitzero"`
	Unread          string `json:"unread,omitzero"` // which keys could not be read although they may be locks, and why; "" = all were read

	AnsweredAt time.Time `json:"-"` // its last reply, on the local clock; known only to a Watcher

	AskBlind string `json:"ask_blind,omitzero"` // why requests of other clients for held locks cannot be seen; "" = they can, or there is no watch

	// The last complete scan, known only to a Watcher.
	ScannedAt time.Time     `json:"scanned_at,omitzero"` // its end, on the local clock
	ScanTime  time.Duration `json:"scan_ns,omitzero"`    // its duration
}

// Server is what the server reports about itself. Empty fields are unknown.
type Server struct {
	Mode    string `json:"mode,omitzero"`    // standalone, sentinel, cluster, redlock
	Product string `json:"product,omitzero"` // redis, valkey, or another name that the server reports
	Version string `json:"version,omitzero"` // version of the product: 8.1.1 for a Valkey that reports compatibility with Redis 7.2.4
	Addr    string `json:"addr,omitzero"`
	Role    string `json:"role,omitzero"`   // master, slave
	Master  string `json:"master,omitzero"` // of a replica: host:port of its master
	// MasterDown says that a replica has lost the connection to its master.
	MasterDown     bool          `json:"master_down,omitzero"`
	PartialCluster bool          `json:"partial_cluster,omitzero"` // it is part of a cluster, and the other nodes are not scanned
	ClusterDown    bool          `json:"cluster_down,omitzero"`    // it is part of a cluster that refuses its clients
	RunID          string        `json:"run_id,omitzero"`          // changes with each restart
	Port           string        `json:"port,omitzero"`
	Uptime         time.Duration `json:"uptime_ns,omitzero"` // in whole seconds

	Policy      string        `json:"policy,omitzero"`       // maxmemory-policy: what the server evicts when its memory is full
	MaxMemory   int64         `json:"max_memory,omitzero"`   // bytes; 0 = no limit
	Evicted     int64         `json:"evicted,omitzero"`      // keys evicted since the start
	Blocked     int64         `json:"blocked,omitzero"`      // clients in a blocking command such as BLPOP
	Replicas    int           `json:"replicas,omitzero"`     // connected replicas
	HadReplicas bool          `json:"had_replicas,omitzero"` // it has none, and had some; known only to a Watcher
	MinReplicas bool          `json:"min_replicas,omitzero"` // it refuses writes with too few replicas (min-replicas-to-write)
	Skew        time.Duration `json:"skew_ns,omitzero"`      // its clock minus the local clock; known only to a Watcher
}

// Software returns product and version for people: "Valkey 8.1.1". It is empty if the
// version is unknown.
func (s Server) Software() string {
	if s.Version == "" {
		return ""
	}
	product := cmp.Or(s.Product, "redis") // recordings of earlier versions have no product
	return strings.ToUpper(product[:1]) + product[1:] + " " + s.Version
}
