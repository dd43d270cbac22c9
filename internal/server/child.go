package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNotInstalled means that PATH has no redis-server.
var ErrNotInstalled = errors.New("redis-server is not on PATH")

// ChildOptions configures a Child. The zero value is a server with default settings.
type ChildOptions struct {
	// Server is the program instead of redis-server, which takes the same arguments. With
	// {port}, it is a command for the shell, which is started with its port, and with no other
	// argument of these options. It has no data after a restart.
	Server string
	Args   []string // further redis-server arguments, such as "--requirepass", "secret"
	// Config is the text of a configuration file, for servers that need a writable one.
	// Args override it.
	Config string
	// ClusterBus means that the server also listens on its port + [busOffset].
	ClusterBus bool
}

// Child is a redis-server process on a free loopback port, with its own directory.
// It has no persistence unless its arguments ask for it. On Linux the kernel kills it
// when this process ends; elsewhere only Stop or Kill end it.
//
// Its methods are safe for concurrent use, but run one after the other.
type Child struct {
	path   string // of redis-server, or a command with {port}
	args   []string
	config string // the file in dir; empty: none
	dir    *folder
	port   int
	bus    bool // it also listens on port + busOffset

	mu      sync.Mutex
	proc    *process // the newest one
	stopped bool
}

// portMark is where a command has its port.
const portMark = "{port}"

// HasPort reports whether a server is a command with a place for its port.
func HasPort(server string) bool { return strings.Contains(server, portMark) }

// portTries is the greatest number of starts. Another process may take the free port
// before the server does.
const portTries = 10

// StartChild starts a redis-server and returns when it accepts connections. ctx
// limits only the start. The error is ErrNotInstalled if PATH has no redis-server.
func StartChild(ctx context.Context, o ChildOptions) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start a redis child: %w", err)
	}
	path, err := cmp.Or(o.Server, "redis-server"), error(nil)
	if !HasPort(path) {
		if path, err = exec.LookPath(path); err != nil && o.Server == "" {
			err = ErrNotInstalled
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start a redis child: %w", err)
	}
	dir, err := newFolder()
	if err != nil {
		return nil, fmt.Errorf("start a redis child: %w", err)
	}
	c := &Child{path: path, args: slices.Clone(o.Args), dir: dir, bus: o.ClusterBus}
	if err := errors.Join(c.configure(o.Config), c.startOnFreePort(ctx)); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return c, nil
}

// configure writes the configuration file unless text is empty.
func (c *Child) configure(text string) error {
	if text == "" {
		return nil
	}
	c.config = filepath.Join(c.dir.path, "redis.conf")
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("start a redis child: %w", err)
	}
	return nil
}

func (c *Child) startOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := c.freePort()
		if err != nil {
			return fmt.Errorf("start a redis child: %w", err)
		}
		c.port = port
		err = c.start(ctx)
		if !errors.Is(err, errPortTaken) || try == portTries {
			return err
		}
	}
}

// busOffset is the distance from a cluster node's port to the port of its bus.
// Redis 7.0 and later can use another port (cluster-port), Redis 6.0 cannot.
const busOffset = 10_000

// freePort returns a loopback port that is free, also with busOffset if the server
// has a bus. Another process may take the port before the server does.
func (c *Child) freePort() (int, error) {
	for try := 1; ; try++ {
		port, err := freePort(0)
		if err != nil || !c.bus {
			return port, err
		}
		if _, err = freePort(port + busOffset); err == nil || try == portTries {
			return port, err
		}
	}
}

// freePort returns a loopback port that is free: the wanted one, or any if wanted
// is 0. Another process may take the port afterwards.
func freePort(wanted int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

var errPortTaken = errors.New("another process took its port")

// start runs the server on c.port and waits until its output says that it is ready.
// A PING is not sufficient: another server with that port may answer it.
func (c *Child) start(ctx context.Context) error {
	path, args := c.path, c.arguments()
	if HasPort(c.path) {
		path, args = "/bin/sh", []string{"-c", "exec " + strings.ReplaceAll(c.path, portMark, strconv.Itoa(c.port))}
	}
	proc, err := spawn(path, args, c.dir)
	if err != nil {
		return fmt.Errorf("start a redis child: %w", err)
	}
	ready := proc.output.ready
	if HasPort(c.path) {
		ready = c.answers(ctx, proc)
	}
	select {
	case <-ready:
		c.proc = proc
		return nil
	case <-proc.done:
		if proc.output.portTaken() {
			return fmt.Errorf("start a redis child on %s: %w", c.Addr(), errPortTaken)
		}
		return fmt.Errorf("start a redis child: it ended at once: %s", proc.output.lastLine())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("start a redis child: %w", context.Cause(ctx)), proc.kill())
	}
}

// answers returns a channel that is closed when a server of another kind answers PING. It never
// is if the server ends before.
func (c *Child) answers(ctx context.Context, proc *process) chan struct{} {
	ready := make(chan struct{})
	go func() {
		rdb := NewClient(c.Addr(), ClientOptions{NoRetry: true})
		defer rdb.Close()
		for proc.running() && ctx.Err() == nil {
			if rdb.Ping(ctx).Err() == nil {
				close(ready)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return ready
}

// arguments puts the mandatory arguments last: redis-server uses the last value of a
// repeated option.
func (c *Child) arguments() []string {
	var config []string
	if c.config != "" {
		config = []string{c.config}
	}
	return slices.Concat(
		config,
		[]string{"--save", "", "--appendonly", "no"},
		c.args,
		[]string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(c.port), "--dir", c.dir.path,
			"--daemonize", "no", "--logfile", "", "--loglevel", "notice",
		},
	)
}

// Addr returns the server's address as host:port. It never changes.
func (c *Child) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
}

// PID returns the process ID of the server, 0 if it does not run.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.proc.running() {
		return 0
	}
	return c.proc.pid()
}

// stopGrace is how long Stop waits for a shutdown before it kills the server.
const stopGrace = 5 * time.Second

// Stop shuts the server down, also a frozen one, waits until it has ended and removes
// its directory. Afterwards Restart fails, and further calls of Stop do nothing.
func (c *Child) Stop() error {
	return c.locked("stop", func() error {
		if c.stopped {
			return nil
		}
		c.stopped = true
		return errors.Join(c.proc.terminate(stopGrace), c.dir.remove())
	})
}

// locked calls f while no other method runs. Its error says what f does.
func (c *Child) locked(what string, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f(); err != nil {
		return fmt.Errorf("%s the redis child: %w", what, err)
	}
	return nil
}

// Kill ends the server like a crash and returns when it has ended. The port and the
// directory stay for Restart. Kill returns nil if the server does not run.
func (c *Child) Kill() error {
	return c.locked("kill", func() error { return c.proc.kill() })
}

// Restart starts a killed server again on the same port: empty, or with its data if
// its arguments make it persistent ("--appendonly", "yes"). It returns an error if the
// server runs or was stopped. ctx limits the start.
func (c *Child) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("restart the redis child: it was stopped")
	}
	if c.proc.running() {
		return errors.New("restart the redis child: it still runs")
	}
	return c.start(ctx)
}

// Erase removes the data of a killed server, so that the next Restart starts empty.
// It returns an error if the server runs or was stopped.
func (c *Child) Erase() error {
	return c.locked("erase", func() error {
		if c.stopped || c.proc.running() {
			return errors.New("it was not killed")
		}
		return c.dir.empty()
	})
}

// Freeze suspends the server until Continue: its connections stay open and it does
// not answer. On Linux the server has stopped when Freeze returns; elsewhere it may
// run a little longer. On Windows Freeze always fails.
func (c *Child) Freeze() error {
	return c.locked("freeze", func() error { return c.proc.freeze() })
}

// Continue resumes a frozen server. It does nothing for a server that runs. On
// Windows it always fails.
func (c *Child) Continue() error {
	return c.locked("continue", func() error { return c.proc.resume() })
}
