package cli

import (
	"time"

	"locktop/keyspace"
)

// jsonNode is one of the servers.
type jsonNode struct {
	Addr    string  `json:"addr"`
	Up      bool    `json:"up"`
	Role    string  `json:"role,omitempty"`
	Name    string  `json:"name,omitempty"` // redis, valkey …
	Version string  `json:"version,omitempty"`
	Keys    int64   `json:"keys"`
	Locks   int     `json:"locks"`
	PingMS  float64 `json:"ping_ms"`
	Trouble string  `json:"trouble,omitempty"`
}

// jsonVote is the state of a Redlock on one node.
type jsonVote struct {
	Node   string `json:"node"`
	Token  string `json:"token"` // empty: no key
	TTLms  int64  `json:"ttl_ms"`
	Silent bool   `json:"silent,omitempty"` // the node did not answer
}

func nodeOf(n keyspace.Node) jsonNode {
	return jsonNode{
		Addr: n.Addr, Up: n.Up, Role: text(n.Role), Name: text(n.Product), Version: text(n.Version), Keys: n.Keys, Locks: n.Locks,
		PingMS: float64(n.Ping) / float64(time.Millisecond), Trouble: text(n.Error),
	}
}
