package servertest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"locktop/internal/server"
)

// portMark is where a command has its port.
const portMark = "{port}"

// HasPort reports whether a program is a command with a place for its port.
func HasPort(program string) bool { return strings.Contains(program, portMark) }

// Program returns the options of a server of another program, which takes the arguments of
// redis-server. With {port}, it is a command for the shell, which is started with its port, and with
// no other argument. It has no data after a restart. An empty program is redis-server.
func Program(program string, args ...string) server.ChildOptions {
	o := server.ChildOptions{Args: args}
	switch {
	case HasPort(program):
		o.Ready = answers
		o.Command = func(port int, _ string, _ []string) []string {
			return []string{"/bin/sh", "-c", "exec " + strings.ReplaceAll(program, portMark, strconv.Itoa(port))}
		}
	case program != "":
		o.Command = func(_ int, _ string, args []string) []string { return append([]string{program}, args...) }
	}
	return o
}

// answers reports, before ctx ends, that a server answers PING.
func answers(ctx context.Context, addr string) bool {
	rdb := server.NewClient(addr, server.ClientOptions{NoRetry: true})
	defer rdb.Close()
	return nil == await(ctx, "an answer", func() (bool, error) {
		err := rdb.Ping(ctx).Err()
		return err == nil, err
	})
}

// WithConfig returns the options of a redis-server that needs a configuration file that it can
// write. Args override its text.
func WithConfig(text string, args ...string) server.ChildOptions {
	return server.ChildOptions{Args: args, Command: func(_ int, dir string, args []string) []string {
		file := filepath.Join(dir, "redis.conf")
		if _, err := os.Stat(file); err != nil {
			_ = os.WriteFile(file, []byte(text), 0o600) // without the file, the server does not start
		}
		return append([]string{"redis-server", file}, args...)
	}}
}

// busOffset is the distance from a cluster node's port to the port of its bus.
// Redis 7.0 and later can use another port (cluster-port), Redis 6.0 cannot.
const busOffset = 10_000

// portWithBus returns a loopback port that is free together with that of the bus.
func portWithBus() (port int, err error) {
	for range 10 {
		var l, bus net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return 0, err
		}
		port = l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if bus, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+busOffset))); err == nil {
			return port, bus.Close()
		}
	}
	return 0, err
}
