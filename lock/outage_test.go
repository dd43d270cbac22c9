package lock_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/lock"
)

// onChild runs f on a redis-server with these arguments. f may kill the server.
func onChild(t *testing.T, f func(*rig, *server.Child), args ...string) {
	t.Helper()
	beside(t)
	child := servertest.RedisForTest(t, args...)
	f(newRig(t, child.Addr(), redis.NewDialer(&redis.Options{})), child)
}

// dialBy replaces the dialer of later clients.
func (r *rig) dialBy(dial netfault.Dialer) {
	r.Helper()
	addr := r.via.Options().Addr
	r.must(r.via.Close())
	r.via = redis.NewClient(&redis.Options{Addr: addr, Dialer: dial, DisableIdentity: true})
}

// Scenario 92: a server evicts a lock because its memory is full.
func TestAnEvictedLockIsNoticed(t *testing.T) {
	onRedis(t, func(r *rig) {
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: 3 * time.Second, Renew: lock.Renew{Every: 50 * time.Millisecond}}))
		r.must(r.rdb.ConfigSet(ctx, "maxmemory-policy", "volatile-ttl").Err())
		r.must(r.rdb.ConfigSet(ctx, "maxmemory", "1kb").Err())
		_ = r.rdb.Set(ctx, "ordinary", "x", 0).Err() // makes room, or fails because there is none
		<-lease.Context().Done()
		check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "it ended with")
	})
}

// Scenario 94: while a server does not write, its answers are old.
func TestAPausedServerFreesNothing(t *testing.T) {
	onRedis(t, func(r *rig) {
		const pause = 700 * time.Millisecond
		a, b := r.client(lock.Config{Owner: "a"}), r.client(lock.Config{Owner: "b"})
		held := r.lock(a.Mutex("orders", lock.Options{TTL: pause / 2}))
		paused := time.Now()
		if err := r.rdb.Do(ctx, "client", "pause", pause.Milliseconds(), "write").Err(); err != nil { // Redis 6.0 can only pause all commands
			r.must(r.rdb.ClientPause(ctx, pause).Err())
		}
		next := lockAsync(ctx, b.Mutex("orders", lock.Options{}))
		<-held.Context().Done()
		check.False(r, time.Now().Before(held.Deadline()), "the lease ended before its deadline")
		r.won(next)
		check.AtLeast(r, time.Since(paused), pause-pause/20, "while the server did not write a client acquired the lock after")
		check.False(r, held.Valid(), "two hold it")
	})
}

// Scenario 95: a server that returns in time, with its data.
func TestALeaseOutlivesAnOutageShorterThanItself(t *testing.T) {
	onChild(t, func(r *rig, child *server.Child) {
		var d eventRecorder
		c := r.client(lock.Config{Observe: d.write})
		lease := r.lock(c.Mutex("orders", lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Every: 50 * time.Millisecond}}))
		r.renewed(&d, 1)
		r.must(child.Kill())
		r.must(child.Restart(ctx))
		r.renewed(&d, 3)
		r.holds("orders", lease.Token())
		r.must(lease.Unlock(ctx))
		r.holds("orders", "")
	}, "--appendonly", "yes", "--appendfsync", "always")
}

// Scenario 96: the peer, or something in between, does not speak RESP.
func TestAPeerThatTalksNonsenseIsAnErrorAndNoMore(t *testing.T) {
	for name, noise := range map[string][]byte{
		"noise":                []byte("\x00\xff\x1b[2J no reply at all\r\n"),
		"a page of HTML":       []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an endless string":    []byte("$536870912\r\nabc"),
		"an impossible length": []byte("*9223372036854775807\r\n"),
		"a nil":                []byte("$-1\r\n"),
		"a status":             []byte("+QUEUED\r\n"),
		"an empty list":        []byte("*0\r\n"),
	} {
		sub(t, name, inBubble, func(r *rig) {
			g := &corruptingDialer{dial: r.via.Options().Dialer, noise: noise}
			r.dialBy(g.connect)
			c := r.client(lock.Config{})
			r.must(r.locked(c.Mutex("warm", lock.Options{})).Unlock(ctx))
			g.on.Store(true)
			_, err := c.Mutex("orders", lock.Options{}).TryLock(ctx)
			check.True(r, err != nil, "nonsense was taken for a lock")
			g.on.Store(false)
			r.until("what the server understood to be undone", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
			r.must(pass(c.Mutex("orders", lock.Options{})))
		})
	}
}

// corruptingDialer dials connections on which noise arrives instead of replies while it is on.
type corruptingDialer struct {
	dial  netfault.Dialer
	noise []byte
	on    atomic.Bool
}

func (g *corruptingDialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := g.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &corruptingConn{Conn: conn, corruptingDialer: g}, nil
}

type corruptingConn struct {
	net.Conn
	*corruptingDialer
}

func (g *corruptingConn) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if err == nil && g.on.Load() {
		return copy(p, g.noise), nil
	}
	return n, err
}

// Scenario 98: the server receives durations, never times of the clients' clocks.
func TestNoMomentIsSentToTheServer(t *testing.T) {
	inBubble(t, func(r *rig) {
		var mu sync.Mutex
		var sent bytes.Buffer
		r.link.Sent = func(request []byte) {
			mu.Lock()
			defer mu.Unlock()
			sent.Write(request)
		}
		c := r.client(lock.Config{})
		for kind, l := range everyKind(c, "orders", lock.Options{TTL: time.Second}) {
			if kind != "all" && kind != "scattered" {
				l = kinds[kind](c, kind, lock.Options{TTL: time.Second, Fence: kind != "semaphore"})
			}
			lease := r.lock(l)
			check.True(r, kind != "fair" || within(500*time.Millisecond, kinds[kind](c.As("another"), kind, lock.Options{TTL: time.Second}).Lock) != nil,
				"a lock was had twice")
			r.must(lease.Unlock(ctx))
		}
		mu.Lock()
		defer mu.Unlock()
		lines := strings.Split(sent.String(), "\r\n") // the arguments of commands and their lengths
		check.AtLeast(r, len(lines), 50, "arguments that were seen")
		now := time.Now()
		for _, arg := range lines {
			n, err := strconv.ParseInt(arg, 10, 64)
			for _, moment := range []int64{now.Unix(), now.UnixMilli(), now.UnixMicro()} {
				check.True(r, err != nil || n <= moment/2 || n >= moment*2, "%s was sent, which is a moment", arg)
			}
		}
	})
}

// Scenario 99: a server that accepts no further clients.
func TestAFullServerStillRenewsAndReleases(t *testing.T) {
	onRedis(t, func(r *rig) {
		var d eventRecorder
		c := r.client(lock.Config{Observe: d.write})
		lease := r.lock(c.Mutex("orders", lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Every: 20 * time.Millisecond}}))
		r.renewed(&d, 1)
		r.must(r.rdb.ConfigSet(ctx, "maxclients", "1").Err())
		stranger := check.Must(net.Dial("tcp", r.rdb.Options().Addr))(r)
		defer stranger.Close()
		answer, _ := io.ReadAll(stranger)
		check.Require(r, bytes.Contains(answer, []byte("max number of clients")), "the server is not full: %q", answer)
		r.renewed(&d, 4)
		r.must(lease.Unlock(ctx))
		r.holds("orders", "")
	})
}

// Scenario 59: a renewal that a stopped server executes later comes too late. Promise
// P2.
func TestALeaseIsOverThatAServerSleptThrough(t *testing.T) {
	onChild(t, func(r *rig, child *server.Child) {
		const ttl = 300 * time.Millisecond
		lease := r.lock(r.client(lock.Config{}).Mutex("orders", lock.Options{TTL: ttl}))
		r.must(child.Freeze())
		<-lease.Context().Done() // by the local clock
		check.ErrorIs(r, context.Cause(lease.Context()), lock.ErrLost, "it ended with")
		time.Sleep(ttl / 5)
		r.must(child.Continue())
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrLost)
		next := r.locked(r.client(lock.Config{}).Mutex("orders", lock.Options{}))
		r.holds("orders", next.Token())
	})
}
