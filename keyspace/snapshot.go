package keyspace

import (
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
}

// Cost is what looking has cost the server.
type Cost struct {
	Scanned  int64         // keys visited by the pass
	Keys     int64         // keys in the databases looked at (DBSIZE), for progress
	Commands int64         // commands sent
	Took     time.Duration // time spent waiting for replies
}

// Server is what the server says of itself; empty fields are unknown.
type Server struct {
	Mode    string // standalone, sentinel, cluster, redlock
	Version string
	Addr    string
	Role    string // master, slave
}

// describe fills in what a section of INFO tells.
func (s *Server) describe(info string) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "redis_version":
			s.Version = value
		case "redis_mode":
			s.Mode = value
		case "role":
			s.Role = value
		}
	}
}
