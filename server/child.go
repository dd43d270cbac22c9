package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrNotInstalled says that there is no redis-server to start on this machine.
var ErrNotInstalled = errors.New("redis-server is not on PATH")

// ChildOptions is how a child differs from a plain server. The zero value is a
// plain server.
type ChildOptions struct {
	Args []string // further redis-server arguments, such as "--requirepass", "secret"
	// Config is the text of a configuration file, for what wants to have one and
	// to write to it. Args go before it.
	Config string
	// clusterBus says that the server also listens on its port + [busOffset].
	clusterBus bool
}

// Child is a real redis-server, run as a child process on a free loopback port,
// in a directory of its own and, unless its arguments say otherwise, without
// persistence. It dies with this process: on Linux whatever happens, elsewhere
// only if Stop or Kill is called.
//
// Its methods are safe for concurrent use, but each waits for the one before.
type Child struct {
	path   string // of redis-server
	args   []string
	config string // the file in dir; empty = none
	dir    string
	port   int
	bus    bool // it also listens on port + busOffset

	mu      sync.Mutex
	proc    *process // the last one started
	stopped bool
}

// portTries bounds how often a start is repeated because somebody else took the
// free port between finding it and using it.
const portTries = 10

// StartChild starts a redis-server and returns when it accepts connections. ctx
// bounds the start, not the server's life. Without a redis-server on PATH the
// error is ErrNotInstalled.
func StartChild(ctx context.Context, o ChildOptions) (*Child, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("start a redis child: %w", ErrNotInstalled)
	}
	dir, err := os.MkdirTemp("", "locktop-redis-")
	if err != nil {
		return nil, fmt.Errorf("start a redis child: %w", err)
	}
	c := &Child{path: path, args: slices.Clone(o.Args), dir: dir, bus: o.clusterBus}
	if err := errors.Join(c.configure(o.Config), c.startOnFreePort(ctx)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

// configure writes the configuration file, if there is to be one.
func (c *Child) configure(text string) error {
	if text == "" {
		return nil
	}
	c.config = filepath.Join(c.dir, "redis.conf")
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
// Redis 7.0 and later could use another port (cluster-port), Redis 6.0 cannot.
const busOffset = 10_000

// freePort returns a loopback port that was free a moment ago, as was the port of
// the bus where the server has one.
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

// freePort returns a loopback port that was free a moment ago: the wanted one, or
// any if that is 0.
func freePort(wanted int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

var errPortTaken = errors.New("its port was taken by somebody else")

// start runs the server on c.port and waits until the server itself says that
// it is ready. A PING would not do: another server may have won the port, and
// would answer it.
func (c *Child) start(ctx context.Context) error {
	proc, err := spawn(c.path, c.arguments(), c.dir)
	if err != nil {
		return fmt.Errorf("start a redis child: %w", err)
	}
	select {
	case <-proc.output.ready:
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

// arguments puts what must hold last: of an option given twice redis-server
// takes the later one.
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
			"--bind", "127.0.0.1", "--port", strconv.Itoa(c.port), "--dir", c.dir,
			"--daemonize", "no", "--logfile", "", "--loglevel", "notice",
		},
	)
}

// Addr is where the server listens, as host:port. It stays the same for life.
func (c *Child) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
}

// PID is the process id of the running server, 0 if it does not run.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.proc.running() {
		return 0
	}
	return c.proc.pid()
}

// stopGrace is how long a server may take to shut down before it is killed.
const stopGrace = 5 * time.Second

// Stop shuts the server down, frozen or not, waits until it is gone and removes
// its directory. It is the end of the child: Restart is refused afterwards.
// Further calls do nothing.
func (c *Child) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	if err := errors.Join(c.proc.terminate(stopGrace), os.RemoveAll(c.dir)); err != nil {
		return fmt.Errorf("stop the redis child: %w", err)
	}
	return nil
}

// Kill ends the server as a crash would and returns when it is gone. Its port
// and directory are kept for Restart. A server that does not run is no error.
func (c *Child) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.proc.kill(); err != nil {
		return fmt.Errorf("kill the redis child: %w", err)
	}
	return nil
}

// Restart starts a killed server again on the port it had: empty, or with what
// its arguments had it keep ("--appendonly", "yes"). It is an error if the server
// still runs, or was stopped. ctx bounds the start.
func (c *Child) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("restart the redis child: it was stopped for good")
	}
	if c.proc.running() {
		return errors.New("restart the redis child: it still runs")
	}
	return c.start(ctx)
}

// Erase removes what a killed server has kept on disk: the next Restart begins
// empty. It is an error if the server still runs, or was stopped.
func (c *Child) Erase() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.proc.running() {
		return errors.New("erase the redis child: it was not killed")
	}
	if err := errors.Join(os.RemoveAll(c.dir), os.Mkdir(c.dir, 0o700)); err != nil {
		return fmt.Errorf("erase the redis child: %w", err)
	}
	return nil
}

// Freeze stalls the server until Continue: its connections stay open and
// nothing is answered. On Linux the server has stopped when Freeze returns;
// elsewhere it may still run for a moment. On Windows Freeze always fails.
func (c *Child) Freeze() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.proc.freeze(); err != nil {
		return fmt.Errorf("freeze the redis child: %w", err)
	}
	return nil
}

// Continue lets a frozen server go on. For one that is not frozen it does
// nothing. On Windows it is always an error.
func (c *Child) Continue() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.proc.resume(); err != nil {
		return fmt.Errorf("continue the redis child: %w", err)
	}
	return nil
}
