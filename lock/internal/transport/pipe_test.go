package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every failed connection
	goleak.VerifyTestMain(m)
}

// rig is a server and the transport to it.
type rig struct {
	*testing.T
	proxy *netfault.Network // between the transport and the server
	pipe  Transport
}

func newRig(t *testing.T, addr string, dial netfault.Dialer, change func(*redis.Options)) *rig {
	proxy := netfault.New(dial)
	o := redis.Options{Addr: addr, Dialer: proxy.Dial, DisableIdentity: true}
	if change != nil {
		change(&o)
	}
	rdb := redis.NewClient(&o)
	r := &rig{t, proxy, NewPipe(CloneOptions(rdb))}
	t.Cleanup(func() {
		proxy.Thaw()
		r.pipe.Close()
		rdb.Close()
	})
	return r
}

// inBubble runs f on the embedded server under a fake clock. change may be nil.
func inBubble(t *testing.T, change func(*redis.Options), f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		t.Cleanup(e.Close)
		f(newRig(t, e.Addr(), e.Dial, change))
	})
}

// echo has the server repeat text, and returns the reply.
func (r *rig) echo(ctx context.Context, text string) (any, error) {
	cmd := &Command{Args: []string{"echo", text}}
	err := r.pipe.Send(ctx, cmd).Wait(ctx)
	if ctx.Err() != nil {
		return nil, err
	}
	return cmd.Value, err
}

// mustEcho ends the test if the server does not repeat a text.
func (r *rig) mustEcho() {
	r.Helper()
	reply, err := r.echo(r.Context(), "hello")
	check.Require(r, reply == "hello" && err == nil, "the server replied %v, %v; want hello", reply, err)
}

func TestEveryCallerGetsItsOwnReplyWhenOthersGiveUp(t *testing.T) {
	r := newRig(t, servertest.RedisForTest(t).Addr(), redis.NewDialer(&redis.Options{}), nil)
	var answered atomic.Int64
	var crowd sync.WaitGroup
	for i := range 16 {
		crowd.Go(func() {
			for n := range 1000 {
				want := fmt.Sprint(i, " ", n)
				brief, cancel := context.WithTimeout(t.Context(), rand.N(400*time.Microsecond))
				got, err := r.echo(brief, want)
				cancel()
				switch {
				case err == nil && got == want:
					answered.Add(1)
				case err == nil && got != nil || err != nil && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("the server replied %v, %v; want %s", got, err, want)
					return
				}
				if i >= 4 && n%20 == 0 {
					time.Sleep(rand.N(5 * time.Millisecond)) // a caller is sometimes alone
				}
			}
		})
	}
	crowd.Wait()
	n := answered.Load()
	check.True(t, n != 0 && n != 16_000, "%d of 16,000 replies came in time, want some", n)
	r.mustEcho()
}

// The next command after the end of an idle connection uses a new one.
func TestAnIdleConnectionThatEndsFailsNoCommand(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		for range 3 {
			for range 3 { // the caller reads the later replies
				r.mustEcho()
			}
			time.Sleep(2 * time.Second)
			r.proxy.Cut()
			time.Sleep(time.Millisecond)
		}
	})
}

func TestCommandsToASilentServerFailAfterTheReadTimeout(t *testing.T) {
	for name, callers := range map[string]int{"one caller": 1, "four callers": 4} {
		t.Run(name, func(t *testing.T) {
			const limit = 3 * time.Second
			inBubble(t, func(o *redis.Options) { o.ReadTimeout = limit }, func(r *rig) {
				r.mustEcho()
				r.mustEcho() // the caller reads the reply
				r.proxy.Freeze()
				var crowd sync.WaitGroup
				for range callers {
					crowd.Go(func() {
						began := time.Now()
						patient, cancel := context.WithTimeout(r.Context(), time.Minute)
						defer cancel()
						_, err := r.echo(patient, "hello")
						took := time.Since(began)
						check.True(r, err != nil && patient.Err() == nil && took == limit, "after %v: %v; want an error after %v", took, err, limit)
					})
				}
				crowd.Wait()
				r.proxy.Thaw()
				r.mustEcho()
			})
		})
	}
}

func TestWithoutAReadTimeoutCommandsWaitForASilentServer(t *testing.T) {
	inBubble(t, func(o *redis.Options) { o.ReadTimeout = -1 }, func(r *rig) {
		for range 2 { // without and with a connection
			r.proxy.Freeze()
			time.AfterFunc(time.Minute, r.proxy.Thaw)
			began := time.Now()
			r.mustEcho()
			check.Equal(r, time.Since(began), time.Minute, "the server was silent for a minute, and the reply came after")
		}
	})
}

// A connection that was just used is closed as fast as an idle one.
func TestCloseWaitsForNothing(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.mustEcho()
		began := time.Now()
		check.ErrorIs(r, r.pipe.Close(), nil)
		check.AtMost(r, time.Since(began), 0, "Close took")
		_, err := r.echo(r.Context(), "hello")
		check.True(r, errors.Is(err, redis.ErrClosed), "a command after Close ended with %v, want ErrClosed", err)
	})
}

// A dial may end after the pipe has given it up; its connection is closed then. The
// race detector finds unguarded accesses.
func TestAConnectionMadeAfterCloseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		entered := make(chan struct{})
		r := newRig(t, "127.0.0.1:1", func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(entered)
			<-ctx.Done() // go-redis has given up the dial
			return near, nil
		}, nil)
		tried := make(chan error, 1)
		go func() {
			_, err := r.echo(t.Context(), "hello")
			tried <- err
		}()
		<-entered
		check.NoError(t, r.pipe.Close())
		check.True(t, <-tried != nil, "a closed transport sent a command")
		far.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := far.Read(make([]byte, 1))
		check.True(t, errors.Is(err, io.EOF), "the connection made after Close gave %v, want EOF", err)
	})
}

// repeatingConn is a connection on which each packet arrives twice while twice is set.
type repeatingConn struct {
	net.Conn
	twice *atomic.Bool
}

func (c repeatingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.twice.Load() {
		n += copy(p[n:], p[:n])
	}
	return n, err
}

// After a reply without a command it is not known which reply belongs to which command.
func TestAReplyWithoutACommandEndsTheConnection(t *testing.T) {
	var twice atomic.Bool
	var dials atomic.Int64
	change := func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			conn, err := dial(ctx, network, addr)
			return repeatingConn{conn, &twice}, err
		}
	}
	inBubble(t, change, func(r *rig) {
		r.mustEcho()
		twice.Store(true)
		began := time.Now()
		reply, err := r.echo(r.Context(), "hello")
		took := time.Since(began)
		check.True(r, errors.Is(err, errUnexpectedReply) && took <= 0, "got %v, %v after %v; want errUnexpectedReply at once", reply, err, took)
		twice.Store(false)
		r.mustEcho()
		check.Equal(r, dials.Load(), 2, "connections")
	})
}

// The pipe writes to the one connection on which go-redis has logged in.
func TestASingleDialerReturnsOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meanwhile := func() {}
		var fars []net.Conn // the other ends of the connections
		dial := func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			fars = append(fars, far)
			meanwhile()
			return near, nil
		}
		closed := func(far net.Conn) {
			t.Helper()
			far.SetReadDeadline(time.Now().Add(time.Second))
			_, err := far.Read(make([]byte, 1))
			check.True(t, errors.Is(err, io.EOF), "the other end of a closed connection gave %v, want EOF", err)
		}
		d := &singleDialer{alive: t.Context(), dial: dial}
		first := check.Must(d.Dial(t.Context(), "", ""))(t)
		if _, err := d.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) || d.Conn() != first {
			t.Errorf("a second connection: %v, want ErrClosed and the first one to stay", err)
		}
		closed(fars[1])
		d.Close()
		closed(fars[0])

		late := &singleDialer{alive: t.Context(), dial: dial}
		meanwhile = late.Close // during the dial
		_, err := late.Dial(t.Context(), "", "")
		check.True(t, errors.Is(err, net.ErrClosed), "a connection after Close: %v, want ErrClosed", err)
		closed(fars[2])
	})
}

// Two undos wait for the acquire that they undo.
func TestSeveralGoroutinesWaitForAReplyOfACluster(t *testing.T) {
	e := server.NewPiped()
	t.Cleanup(e.Close)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Dialer: e.Dial,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: e.Addr()}}}}, nil
		},
	})
	t.Cleanup(func() { rdb.Close() })
	cluster := check.Must(NewCluster(rdb))(t)
	t.Cleanup(func() { cluster.Close() })
	cmd := &Command{Args: []string{"set", "key", "value"}}
	reply := cluster.Send(t.Context(), cmd)
	var group errgroup.Group
	for range 2 {
		group.Go(func() error { return reply.Wait(t.Context()) })
	}
	err := group.Wait()
	check.True(t, err == nil && cmd.Value == "OK", "the server replied %v, %v; want OK", cmd.Value, err)
}
