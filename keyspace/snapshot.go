package keyspace

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Snapshot is every lock that was known at one moment. It is immutable: it may
// be kept, compared and handed between goroutines freely.
type Snapshot struct {
	At       time.Time // the server's clock
	Locks    []Lock    // ordered by node, database, key
	Complete bool      // false while the first pass over the keyspace is under way
	Cost     Cost      // what it took to make this snapshot
	Server   Server
	Nodes    []Node   // the servers that were asked, in the order of their addresses
	Problems []string // what is missing from the picture, and why: a clause each

	// What only following can tell; zero after a single look.
	Follow  WatchStatus // how it is followed
	Events  []Event     // what has happened since the snapshot before, in order
	Notices []Notice    // what has happened to the server, or to our view of it, since then

	moves *slotMoves // between the nodes of the cluster while this one was looked at; nil = none
}

// WatchMode says how changes are learnt of.
type WatchMode string

// From the best to the last resort.
const (
	Push          WatchMode = "push"    // the server tells which key has changed (client tracking)
	Notifications WatchMode = "notify"  // keyspace notifications, which somebody had switched on
	Polling       WatchMode = "polling" // everything known is read again and again
)

// WatchStatus says how the locks are followed, and what that cannot show.
type WatchStatus struct {
	Mode WatchMode
	// Lag is how far the picture may be behind: the longest that one of the
	// latest changes took from the moment we were told of it until it was read;
	// with polling, the time between two looks.
	Lag   time.Duration
	Blind []string // what cannot be seen, and why: a sentence each
}

// and is how two servers are followed together: as well as the worse of them.
func (f WatchStatus) and(other WatchStatus) WatchStatus {
	worse := map[WatchMode]int{Push: 1, Notifications: 2, Polling: 3}
	if worse[other.Mode] > worse[f.Mode] {
		f.Mode = other.Mode
	}
	f.Lag = max(f.Lag, other.Lag)
	f.Blind = appendNew(slices.Clip(f.Blind), other.Blind...)
	return f
}

// Notice is something that happened to the server or to our view of it, in one
// sentence.
type Notice struct {
	At   time.Time // our clock: the server may have none at the moment
	Kind NoticeKind
	Node string
	Text string
}

// NoticeKind tells notices apart.
type NoticeKind string

// What can happen to a server, or between it and us.
const (
	ServerLost       NoticeKind = "lost"      // it does not answer; we go on trying
	ServerBack       NoticeKind = "back"      // it answers again
	ServerRestarted  NoticeKind = "restarted" // it is another process than before
	ServerFailover   NoticeKind = "failover"  // another server has taken its place
	ServerFlushed    NoticeKind = "flushed"   // a database was emptied
	RightsChanged    NoticeKind = "rights"    // something is not allowed any more, or is again
	WatchModeChanged NoticeKind = "following" // changes are learnt of in another way
)

// Cost is what looking has cost the server.
type Cost struct {
	Scanned  int64         // keys visited by the pass
	Keys     int64         // keys in the databases looked at (DBSIZE), for progress
	Commands int64         // commands sent
	Took     time.Duration // time spent waiting for replies
	Busy     time.Duration // time the server was busy with us, by its own clock
}

// add takes in what something else has cost.
func (c *Cost) add(other Cost) {
	c.Commands += other.Commands
	c.Took += other.Took
	c.Busy += other.Busy
}

// Node is one of the servers of a picture.
type Node struct {
	Server
	Up      bool          // it answers
	Trouble string        // what it says instead, or what stands in the way
	Ping    time.Duration // the way to it and back
	Keys    int64         // in the databases looked at
	Locks   int           // found on it
	Walked  bool          // all of its keys have been looked through
}

// Server is what the server says of itself; empty fields are unknown.
type Server struct {
	Mode    string // standalone, sentinel, cluster, redlock
	Product string // redis, valkey, or what else it calls itself
	Version string // of the product: 8.1.1 of a Valkey that says it is compatible with Redis 7.2.4
	Addr    string
	Role    string // master, slave
	Master  string // of a replica: host:port of its master
	// MasterDown tells that a replica is not connected to its master.
	MasterDown bool
	Alone      bool   // it is part of a cluster, and the other nodes are not looked at
	RunID      string // another one after each restart
	Port       string
	Uptime     time.Duration // to the second

	Policy      string        // maxmemory-policy: what the server throws away when memory is short
	MaxMemory   int64         // bytes; 0 = no limit
	Evicted     int64         // keys thrown away since it was started
	Blocked     int64         // clients that wait in a command that blocks, such as BLPOP
	Replicas    int           // connected ones
	MinReplicas bool          // it refuses writes when too few replicas would have them
	Skew        time.Duration // its clock minus ours, as far as it is followed
}

// describe fills in what a section of INFO tells.
func (s *Server) describe(info string) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "redis_version": // the first line of all; other products go on with their own
			s.Product, s.Version = "redis", value
		case "server_name":
			s.Product = value
		case s.Product + "_version":
			s.Version = value
		case "redis_mode", "server_mode":
			s.Mode = value
		case "role":
			s.Role = value
		case "master_host":
			s.Master = value
		case "master_port":
			s.Master = net.JoinHostPort(s.Master, value)
		case "master_link_status":
			s.MasterDown = value == "down"
		case "run_id":
			s.RunID = value
		case "tcp_port":
			s.Port = value
		case "uptime_in_seconds":
			s.Uptime = time.Duration(number(value)) * time.Second
		case "maxmemory":
			s.MaxMemory = number(value)
		case "maxmemory_policy":
			s.Policy = value
		case "evicted_keys":
			s.Evicted = number(value)
		case "blocked_clients":
			s.Blocked = number(value)
		case "connected_slaves":
			s.Replicas = int(number(value))
		case "min_slaves_good_slaves":
			s.MinReplicas = true
		}
	}
}

// Software names the product and its version for people: "Valkey 8.1.1". It is
// empty if the server does not say.
func (s Server) Software() string {
	if s.Version == "" {
		return ""
	}
	product := cmp.Or(s.Product, "redis") // recordings of earlier versions do not say
	return strings.ToUpper(product[:1]) + product[1:] + " " + s.Version
}

// number reads a number; what is none counts as 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
