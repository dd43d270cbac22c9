package servertest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

// idle has the redis-servers of tests that have ended. A start takes longer than most tests.
var idle idleServers

type idleServers struct {
	mu      sync.Mutex
	keeping bool                     // servers are kept for later tests
	servers []*server.Child          // clean
	began   map[*server.Child]string // the settings of each server at its start
	path    map[*server.Child]string // of its program
}

// keep makes put keep servers until stop.
func (s *idleServers) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeping, s.began, s.path = true, make(map[*server.Child]string), make(map[*server.Child]string)
}

// stop stops the servers that no test uses.
func (s *idleServers) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeping = false
	_ = children(s.servers).stop() // the tests are over
	s.servers = nil
}

// take returns a server in the state of a new one.
func (s *idleServers) take(ctx context.Context) (*server.Child, error) {
	path, _ := exec.LookPath("redis-server") // a test may have another PATH
	s.mu.Lock()
	keeping := s.keeping
	if n := len(s.servers); n > 0 && s.path[s.servers[n-1]] == path {
		c := s.servers[n-1]
		s.servers = s.servers[:n-1]
		s.mu.Unlock()
		return c, nil
	}
	s.mu.Unlock()
	c, err := server.StartChild(ctx, server.ChildOptions{})
	if err != nil || !keeping {
		return c, err
	}
	settings, _ := renew(ctx, c) // a server that cannot be renewed is not kept
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began[c], s.path[c] = settings, path
	return c, nil
}

// put keeps a server, which may be frozen, or stops it if its test has changed what cannot be renewed.
func (s *idleServers) put(c *server.Child) error {
	s.mu.Lock()
	began := s.began[c]
	s.mu.Unlock()
	if began != "" && c.PID() != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Continue() // if it fails, so does renew
		if settings, err := renew(ctx, c); err == nil && settings == began {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.servers = append(s.servers, c)
			return nil
		}
	}
	return children{c}.stop()
}

// renew disconnects the clients of a server, deletes its data, scripts, statistics and users, and
// returns its settings. It fails for a server before 7.0, and for one that is not a master alone.
func renew(ctx context.Context, c *server.Child) (settings string, err error) {
	rdb := dial(c)
	defer rdb.Close()
	names, err := rdb.Do(ctx, "ACL", "USERS").StringSlice()
	if err != nil {
		return "", fmt.Errorf("renew a redis child: %w", err)
	}
	var config, users, roles *redis.Cmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			if name != "default" {
				p.Do(ctx, "ACL", "DELUSER", name)
			}
		}
		for _, command := range []string{
			"CLIENT UNPAUSE", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub",
			"FLUSHALL", "SCRIPT FLUSH", "FUNCTION FLUSH", "SLOWLOG RESET", "LATENCY RESET", "ACL LOG RESET", "CONFIG RESETSTAT",
		} {
			p.Do(ctx, words(command)...)
		}
		config, users, roles = p.Do(ctx, "CONFIG", "GET", "*"), p.Do(ctx, "ACL", "LIST"), p.Do(ctx, "ROLE")
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("renew a redis child: %w", err)
	}
	if role := fmt.Sprint(roles.Val()); !strings.HasPrefix(role, "[master ") || !strings.HasSuffix(role, " []]") {
		return "", fmt.Errorf("renew a redis child: its role is %s", role)
	}
	return fmt.Sprint(config.Val(), users.Val()), nil
}

// words returns the arguments of a command without spaces in them.
func words(command string) []any {
	var all []any
	for _, word := range strings.Fields(command) {
		all = append(all, word)
	}
	return all
}
