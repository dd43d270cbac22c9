package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ErrNotInstalled means that PATH has no redis-server.
var ErrNotInstalled = errors.New("redis-server is not on PATH")

// ChildOptions configures a Child. The zero value is a server with default settings.
type ChildOptions struct {
	Args []string // further redis-server arguments, such as "--requirepass", "secret"
	// Command returns what runs instead of redis-server with args, which have the port and the
	// directory; nil: redis-server.
	Command func(port int, dir string, args []string) []string
	Port    func() (int, error) // returns a free port; nil: any
	// Ready reports, before ctx ends, that the server at addr is ready; nil: its output says so.
	Ready func(ctx context.Context, addr string) bool
}

// Child is a redis-server process on a free loopback port, with its own directory.
// It has no persistence unless its arguments ask for it. On Linux the kernel kills it
// when this process ends; elsewhere only Stop or Kill end it.
//
// Its methods are safe for concurrent use, but run one after the other.
type Child struct {
	options ChildOptions
	dir     *folder
	port    int

	mu      sync.Mutex
	proc    *process // the newest one
	stopped bool
}

// portTries is the greatest number of starts. Another process may take the free port
// before the server does.
const portTries = 10

// StartChild starts a redis-server and returns when it accepts connections. ctx
// limits only the start. The error is ErrNotInstalled if PATH has no redis-server.
func StartChild(ctx context.Context, o ChildOptions) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start a redis child: %w", err)
	}
	if o.Command == nil {
		path, err := exec.LookPath("redis-server")
		if err != nil {
			return nil, fmt.Errorf("start a redis child: %w", ErrNotInstalled)
		}
		o.Command = func(_ int, _ string, args []string) []string { return append([]string{path}, args...) }
	}
	dir, err := newFolder()
	if err != nil {
		return nil, fmt.Errorf("start a redis child: %w", err)
	}
	if o.Port == nil {
		o.Port = freePort
	}
	o.Args = slices.Clone(o.Args)
	c := &Child{options: o, dir: dir}
	if err := c.startOnFreePort(ctx); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return c, nil
}

func (c *Child) startOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := c.options.Port()
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

// freePort returns a loopback port that is free. Another process may take the port afterwards.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
	command := c.options.Command(c.port, c.dir.path, c.arguments())
	proc, err := spawn(command[0], command[1:], c.dir)
	if err != nil {
		return fmt.Errorf("start a redis child: %w", err)
	}
	ready := proc.output.ready
	if c.options.Ready != nil {
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		ready = make(chan struct{})
		go func() {
			if c.options.Ready(within, c.Addr()) {
				close(ready)
			}
		}()
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

// arguments puts the mandatory arguments last: redis-server uses the last value of a
// repeated option.
func (c *Child) arguments() []string {
	return slices.Concat(
		[]string{"--save", "", "--appendonly", "no"},
		c.options.Args,
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

// Independent is a group of [Child] servers without connections to each other, like
// the nodes of a Redlock. A node keeps its data on disk across Down and Up.
type Independent struct {
	nodes []*Child
}

// StartIndependent starts n servers with options. ctx limits the start. The servers append every
// command to their file before the reply, without fsync. With the default, an fsync
// every second, a write may wait for the previous fsync, and Kill would lose writes
// that the server has acknowledged.
func StartIndependent(ctx context.Context, n int, o ChildOptions) (*Independent, error) {
	o.Args = append(slices.Clip(o.Args), "--appendonly", "yes", "--appendfsync", "no")
	i := &Independent{}
	for range n {
		c, err := StartChild(ctx, o)
		if err != nil {
			return nil, errors.Join(err, i.Stop())
		}
		i.nodes = append(i.nodes, c)
	}
	return i, nil
}

// Stop kills all servers, which is faster than a shutdown of each, and removes their
// directories.
func (i *Independent) Stop() error {
	var errs []error
	for _, c := range i.nodes {
		errs = append(errs, c.Kill(), c.Stop())
	}
	return errors.Join(errs...)
}

// Nodes returns the servers.
func (i *Independent) Nodes() []*Child { return i.nodes }

// Down ends a server, counted from 1, like a crash.
func (i *Independent) Down(node int) error { return i.nodes[node-1].Kill() }

// Up restarts a server that is down, with its data or empty. It does nothing if the
// server runs.
func (i *Independent) Up(ctx context.Context, node int, empty bool) error {
	c := i.nodes[node-1]
	if c.PID() != 0 {
		return nil
	}
	if empty {
		if err := c.Erase(); err != nil {
			return err
		}
	}
	return c.Restart(ctx)
}

// Freeze suspends a server, counted from 1, until Continue.
func (i *Independent) Freeze(node int) error { return i.nodes[node-1].Freeze() }

// Continue resumes a server, counted from 1.
func (i *Independent) Continue(node int) error { return i.nodes[node-1].Continue() }
