// Package clients lists the clients of this directory: programs that lock with a library
// and speak the protocol of locktop load --exec.
package clients

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Client is a client, with what it cannot do.
type Client struct {
	Command string // for the shell, in this directory
	Name    string // the beginning of the name that it says
	Group   Group

	quorum      bool // it locks on a majority of several servers
	fixed       bool // it can neither renew nor extend
	deletesAny  bool // its release deletes any lock
	mayNotTell  bool // an Unlock right after a freeze may report success although the lock is lost
	polls       bool // its waiters ask again and again by a command that resets the idle time of the key
	sinceAsking bool // its TTL begins with the wait, not with the acquire
}

// Group is what a client locks with.
type Group string

// Groups of clients.
const (
	Library Group = "library"        // the library itself
	Recipe  Group = "recipe or form" // commands that people paste; or those of a library that cannot run here, sent by a program of ours
	Own     Group = "locktop"        // package lock
)

// Build builds the clients in Go, and locktop, into the directory bin. It returns the
// clients that can run here, and the reasons why others cannot. The directory dir is this
// one; bin is relative to it, if it is not absolute.
func Build(ctx context.Context, dir, bin string) (found []Client, missing []string, err error) {
	for module, packages := range map[string][]string{
		dir:                         {"./redsync", "./redislock", "./rueidislock", "./redisson-form"},
		filepath.Join(dir, "../.."): {"locktop"},
	} {
		out := bin
		if !filepath.IsAbs(bin) {
			if out, err = filepath.Abs(filepath.Join(dir, bin)); err != nil {
				return nil, nil, err
			}
		}
		args := append([]string{"build", "-C", module, "-o", out + "/"}, packages...)
		if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
		}
	}
	here := func(name string) string { return filepath.Join(bin, name) }
	found = []Client{
		{Command: here("redsync"), Name: "redsync ", Group: Library, polls: true, quorum: true},
		{Command: here("redislock"), Name: "redislock ", Group: Library, polls: true},
		{Command: here("rueidislock"), Name: "rueidislock ", Group: Library, mayNotTell: true},
		{Command: here("redisson-form"), Name: "redisson-form ", Group: Recipe},
		// The protocol itself, with locks whose promises have tests of their own.
		{Command: here("locktop") + " load --as-client mutex", Name: "locktop mutex", Group: Own},
		{Command: here("locktop") + " load --as-client fair", Name: "locktop fair", Group: Own},
		{Command: here("locktop") + " load --as-client redlock", Name: "locktop redlock", Group: Own, quorum: true},
	}
	for _, others := range []struct {
		needs []string // a command that fails if they cannot run
		all   []Client
	}{
		{[]string{"redis-cli", "--version"}, []Client{
			{Command: "sh shell/redis-cli.sh", Name: "redis-cli ", Group: Recipe, polls: true, fixed: true, deletesAny: true},
		}},
		{[]string{python, "-c", "import redis"}, []Client{ // the interpreter that has Debian's package
			{Command: python + " python/set_nx.py", Name: "SET NX with redis-py ", Group: Recipe, polls: true, fixed: true},
			{Command: python + " python/redis_py.py", Name: "redis-py ", Group: Library, polls: true},
			{Command: python + " python/python_redis_lock_form.py", Name: "python-redis-lock-form ", Group: Recipe},
		}},
		{[]string{"node", "--input-type=module", "--eval", "import 'ioredis'"}, []Client{ // node_modules is that of ../compat/node
			{Command: "node node/set_nx.js", Name: "SET NX with ioredis ", Group: Recipe, polls: true, fixed: true},
			{Command: "node node/redlock.js", Name: "redlock ", Group: Library, quorum: true, sinceAsking: true},
			{Command: "node node/redis-semaphore.js", Name: "redis-semaphore ", Group: Library, polls: true},
		}},
	} {
		needs := exec.CommandContext(ctx, others.needs[0], others.needs[1:]...)
		needs.Dir = filepath.Join(dir, "node")
		if err := needs.Run(); err != nil {
			for _, c := range others.all {
				missing = append(missing, fmt.Sprintf("%s: %s: %v", strings.TrimSpace(c.Name), strings.Join(others.needs, " "), err))
			}
			continue
		}
		found = append(found, others.all...)
	}
	return found, missing, nil
}

const python = "/usr/bin/python3"
