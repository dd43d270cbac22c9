package inspect

import (
	"net"
	"strconv"
	"strings"
	"time"

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
