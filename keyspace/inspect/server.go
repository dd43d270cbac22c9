package inspect

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// describeServer fills in the values of a section of INFO.
func describeServer(s *keyspace.Server, info string) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch name {
		case "redis_version": // the first line; other products add their own version
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

// number parses a number; anything else counts as 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// isWrongType reports whether a key has another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// isDenied reports whether a server does not know a command, or the user may not send
// it, at all or for this key.
func isDenied(err error) bool { return isCommandDenied(err) || isKeyDenied(err) }

// isCommandDenied reports whether a server does not know a command, or the user may not
// send it at all.
func isCommandDenied(err error) bool {
	return err != nil && redis.HasErrorPrefix(err, "NOPERM") && !isKeyDenied(err) || isUnknownCommand(err)
}

// isUnknownCommand reports whether a server does not know a command: it is too old, or
// the command is renamed.
func isUnknownCommand(err error) bool { return redis.HasErrorPrefix(err, "unknown command") }

// isKeyDenied reports whether this user may not read a key. Names of users and
// commands, which are part of other messages, contain no spaces.
func isKeyDenied(err error) bool {
	if err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "no permissions to access one of the keys") || // Redis 6.0 and 7.0
		strings.Contains(text, "No permissions to access a key") // Redis 7.2 and later, Valkey
}

// isTransient reports whether a server is loading, busy, or failing over.
func isTransient(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// errRestarted means that the cursors are invalid and that the reasons of ended holds
// are unknown.
var errRestarted = errors.New("the server was restarted while it was looked at; try again")

// isConnLost reports whether the connection or the server was lost.
func isConnLost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, errRestarted) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
