package proofs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace/incident"
	"locktop/lab/internal/labtest"
)

// staging is a server, or several, with the kinds of incidents that are staged on it at the same time.
type staging struct {
	name  string
	start func(t *testing.T) (addr string, flags []string)
	kinds []kind
}

const second = time.Second

// any of the causes that say of a hold that it ran out.
var ranOut = []incident.Cause{incident.ExpiredConnected, incident.RenewalsStopped, incident.Expired}

// oneServer are the kinds of a server that works.
func oneServer() []kind {
	return []kind{
		{"healthy hand-overs", func(s *scene) { s.usual() }, nil, []string{"No incident", "holds ended (usual hold"}, nil},
		{"killed", func(s *scene) {
			s.usual()
			p := s.process("worker-7")
			p.acquire(7 * second)
			time.Sleep(2 * second)
			p.kill()
			p.expires()
		}, []incident.Cause{incident.HolderGone}, []string{"had ended by", "TTL 7 s, never renewed", "expired; no release", "whether worker-7 worked on"}, nil},
		{"killed while it renews", func(s *scene) {
			p := s.process("worker-7")
			p.acquire(5 * second)
			p.renew(3, second, 5*second)
			p.kill()
			p.expires()
		}, []incident.Cause{incident.HolderGone}, []string{"had ended by", "renewed 3 times"}, nil},
		{"frozen", func(s *scene) {
			p := s.process("worker-7")
			p.acquire(4 * second)
			p.renew(3, second, 4*second)
			p.freeze()
			p.expires()
			next := s.client("worker-8")
			next.acquire(10 * second)
			time.Sleep(second)
			next.release()
		}, []incident.Cause{incident.ExpiredConnected}, []string{"was not seen to end", "renewed 3 times", "worker-8 acquired it, while worker-7 may have worked", "still worked, hung, was cut off or had ended"}, []string{"had ended by"}},
		{"works too long", func(s *scene) {
			s.usual()
			c := s.client("worker-s")
			c.acquire(4 * second)
			for range 20 {
				c.rdb.Incr(c.ctx(), "progress")
				time.Sleep(200 * time.Millisecond)
			}
			c.expires()
			c.release()
		}, ranOut, []string{"TTL 4 s, never renewed", "expired; no release"}, []string{"a TTL of", "had ended by"}},
		{"never renewed over its TTL", func(s *scene) {
			s.usual()
			for i := range 4 {
				c := s.client(fmt.Sprint("worker-", i))
				c.acquire(1500 * time.Millisecond)
				c.expires()
			}
		}, append(ranOut, incident.TTLTooShort), []string{"TTL 1.5 s, never renewed", "while worker-1 may have worked"}, nil},
		{"renewals refused", func(s *scene) {
			c := s.client("worker-r")
			c.acquire(4 * second)
			c.renew(2, second, 4*second)
			c.token += "-lost" // its renewals compare another token
			c.renew(3, second, 4*second)
			c.expires()
		}, []incident.Cause{incident.ExpiredConnected}, []string{"renewed twice|renewed 2 times", "did not renew|ran out"}, []string{"had ended by"}},
		{"deleted by a person", func(s *scene) {
			s.usual()
			c := s.client("worker-3")
			c.acquire(60 * second)
			time.Sleep(5500 * time.Millisecond)
			s.person(removed, "DEL", s.key)
			c.release()
		}, []incident.Cause{incident.Overdue}, []string{"released or deleted", "whether worker-3 released it, or another client deleted it"}, []string{"  worker-3 released it"}},
		{"Redisson deleted by a person", func(s *scene) {
			r := s.redisson()
			for range 3 {
				r.acquire(30 * second)
				time.Sleep(400 * time.Millisecond)
				r.release()
				time.Sleep(200 * time.Millisecond)
			}
			r.acquire(30 * second)
			time.Sleep(2 * second)
			s.person(removed, "DEL", s.key)
		}, []incident.Cause{incident.Deleted}, []string{"A client deleted", "deleted without the message of a release"}, nil},
		{"a deadline that a person sets earlier", func(s *scene) {
			s.usual()
			c := s.client("worker-5")
			c.acquire(60 * second)
			time.Sleep(2 * second)
			s.person(moved, "PEXPIRE", s.key, 1000)
			c.expires()
		}, []incident.Cause{incident.Expired}, []string{"its deadline was moved from", "TTL 1 m, never renewed", "Redis does not record it"}, []string{"a TTL of"}},
		{"a deadline that a person sets later", func(s *scene) {
			c := s.client("worker-5")
			c.acquire(3 * second)
			time.Sleep(2 * second)
			s.person(moved, "PEXPIRE", s.key, 5000)
			c.expires()
		}, ranOut, []string{"renewed once", "expired; no release"}, []string{"TTL 5 s"}},
		{"a deadline that a person removes", func(s *scene) {
			s.usual()
			c := s.client("worker-6")
			c.acquire(8 * second)
			time.Sleep(second)
			s.person(moved, "PERSIST", s.key)
			time.Sleep(second)
			c.ends()
			time.Sleep(8 * second)
			s.person(removed, "DEL", s.key)
		}, []incident.Cause{incident.NeverExpires}, []string{"TTL 8 s", "was removed", "released or deleted"}, []string{"no TTL", "SET NX PX"}},
		{"renamed away", func(s *scene) {
			s.usual()
			c := s.client("worker-1")
			c.acquire(30 * second)
			time.Sleep(5500 * time.Millisecond)
			s.person(removed, "RENAME", s.key, s.key+"-new")
			s.admin.Del(s.ctx(), s.key+"-new")
		}, []incident.Cause{incident.Overdue}, []string{"released or deleted"}, []string{"  worker-1 released it"}},
		{"renamed to", func(s *scene) {
			from := &scene{T: s.T, key: s.key + "-old", own: s.own, addr: s.addr, admin: s.admin}
			c := from.client("worker-1")
			c.acquire(8 * second)
			time.Sleep(3 * second)
			s.person(removed, "RENAME", from.key, s.key)
			s.note(fact{what: brought, who: c.name, token: c.token})
			c.scene = s
			c.expires()
		}, []incident.Cause{incident.Expired, incident.ExpiredConnected}, []string{"expired; no release"}, []string{"TTL 5", "acquired it: "}},
		{"restored", func(s *scene) {
			c := s.client("worker-1")
			c.acquire(30 * second)
			time.Sleep(2 * second)
			copied := s.admin.Dump(s.ctx(), s.key).Val()
			c.release()
			time.Sleep(1500 * time.Millisecond)
			s.person(removed, "RESTORE", s.key, 4000, copied)
			s.note(fact{what: brought, who: c.name, token: c.token, ttl: 4 * second})
			c.expires()
		}, ranOut, []string{"worker-1 has it again, with the value of the last hold"}, []string{"acquired it: TTL 4"}},
		{"the same token twice", func(s *scene) {
			c := s.client("worker-1")
			c.acquire(30 * second)
			time.Sleep(2 * second)
			c.release()
			time.Sleep(1500 * time.Millisecond)
			c.again(4 * second)
			c.expires()
		}, ranOut, []string{"with the value of the last hold: TTL 4 s"}, nil},
		{"two clients renew", func(s *scene) {
			a, b := s.client("worker-a"), s.client("worker-b")
			a.acquire(4 * second)
			b.token = a.token
			a.renew(2, second, 4*second)
			b.renew(2, second, 4*second)
			a.expires()
		}, ranOut, []string{"renewed 4 times"}, []string{"had ended by"}},
		{"processes of the same name", func(s *scene) {
			other, p := s.client("web-1"), s.process("web-1")
			p.acquire(5 * second)
			p.renew(5, second, 5*second) // a list of the clients shows both
			p.kill()
			for range 5 {
				time.Sleep(second)
				other.rdb.Ping(s.ctx())
			}
			p.expires()
		}, []incident.Cause{incident.RenewalsStopped, incident.HolderGone}, []string{"renewed 5 times"}, []string{"127.0.0.1:", "no connection with the name"}},
		{"overwritten", func(s *scene) {
			s.usual()
			c, thief := s.client("worker-1"), s.client("worker-2x")
			c.acquire(30 * second)
			time.Sleep(2 * second)
			s.admin.Set(s.ctx(), s.key, thief.token, 30*second)
			s.note(fact{what: taken, who: c.name})
			thief.did(acquired, 30*second)
			time.Sleep(2 * second)
			thief.release()
		}, nil, nil, []string{"  worker-1 released it"}},
		{"overwritten with its deadline", func(s *scene) {
			c, thief := s.client("worker-1"), s.client("worker-2x")
			c.acquire(30 * second)
			time.Sleep(2 * second)
			s.admin.SetXX(s.ctx(), s.key, thief.token, -1)
			s.note(fact{what: taken, who: c.name})
			thief.did(acquired, 28*second)
			time.Sleep(2 * second)
			thief.release()
		}, []incident.Cause{incident.Stolen}, []string{"worker-2x took", "taken without a release"}, nil},
		{"once in a window", func(s *scene) {
			c := s.client("cron-1")
			for range 5 {
				c.acquire(1500 * time.Millisecond)
				c.expires()
			}
		}, []incident.Cause{incident.TTLTooShort}, []string{"let the lock expire on purpose", "each time the same client"}, []string{"may have worked"}},
		{"kept for a minimum time", func(s *scene) {
			c := s.client("worker-l")
			for range 6 {
				c.acquire(20 * second)
				time.Sleep(500 * time.Millisecond)
				c.rdb.PExpire(s.ctx(), s.key, 800*time.Millisecond)
				c.did(moved, 0)
				c.expires()
			}
		}, []incident.Cause{incident.Expired}, []string{"so does a release that keeps the lock for a minimum time"}, []string{"may have worked", "too short"}},
		{"ShedLock with a minimum time", func(s *scene) { // it has a token of its own for each change
			c := s.client("batch-01")
			value := func() string { return "ADDED:" + time.Now().UTC().Format("2006-01-02T15:04:05.000Z") + "@batch-01" }
			for range 6 {
				c.token = value()
				c.again(20 * second)
				time.Sleep(500 * time.Millisecond)
				c.token = value()
				c.rdb.SetXX(s.ctx(), s.key, c.token, 1200*time.Millisecond)
				c.did(moved, 0)
				c.did(brought, 1200*time.Millisecond)
				c.expires()
			}
		}, []incident.Cause{incident.Expired}, []string{"so does a release that keeps the lock for a minimum time"}, []string{"may have worked", "too short"}},
		{"a client against itself", func(s *scene) {
			c := s.client("worker-1")
			for range 3 {
				c.acquire(2 * second)
				c.expires()
				c.acquire(10 * second)
				time.Sleep(300 * time.Millisecond)
				c.release()
			}
		}, append(ranOut, incident.TTLTooShort), []string{"expired; no release", "worker-1 acquired it again"}, []string{"may have worked"}},
		{"renewed for long while clients wait", func(s *scene) {
			r := s.redisson()
			r.acquire(10 * second)
			for range 3 {
				sub := servertest.Subscribe(s.ctx(), labtest.Client(s.T, s.addr, server.ClientOptions{}), r.channel())
				s.Cleanup(func() { _ = sub.Close() })
			}
			for range 33 {
				time.Sleep(second)
				r.extend(10 * second)
			}
			r.release()
		}, []incident.Cause{incident.Overdue}, []string{"while up to 3 clients waited", "how long a hold usually takes: fewer than five"}, nil},
		{"a waiter that dies", func(s *scene) {
			r := s.redisson()
			r.acquire(8 * second)
			sub := servertest.Subscribe(s.ctx(), labtest.Client(s.T, s.addr, server.ClientOptions{}), r.channel())
			time.Sleep(3 * second)
			_ = sub.Close()
			r.passes()
		}, ranOut, []string{"expired; no release"}, []string{"acquired it: TTL 5"}},
		{"a reader of Redisson whose deadline passes", func(s *scene) {
			a, b := uuid.NewString()+":1", uuid.NewString()+":1"
			timeout := "{" + s.key + "}:" + a + ":rwlock_timeout:1"
			s.admin.HSet(s.ctx(), s.key, "mode", "read", a, 1, b, 1)
			s.admin.PExpire(s.ctx(), s.key, 20*second)
			s.admin.Set(s.ctx(), timeout, 1, 2*second)
			s.admin.Set(s.ctx(), strings.ReplaceAll(timeout, a, b), 1, 20*second)
			s.note(fact{what: acquired, who: a, token: a, ttl: 2 * second})
			s.note(fact{what: acquired, who: b, token: b, ttl: 20 * second})
			time.Sleep(2 * second)
			s.happened(passed)
			time.Sleep(3 * second)
			s.admin.HDel(s.ctx(), s.key, b)
			s.note(fact{what: released, who: b, token: b})
			time.Sleep(2 * second)
			s.person(removed, "DEL", s.key)
		}, nil, []string{"2 holds ended"}, nil},
		{"a permit that is lost", func(s *scene) { // of redis-semaphore: a zset of times
			a, b := uuid.NewString(), uuid.NewString()
			s.key = "semaphore:" + s.key
			refresh := func(id string) { keepPermit.Run(s.ctx(), s.admin, []string{s.key}, time.Now().UnixMilli(), 4000, id) }
			refresh(a)
			refresh(b)
			s.note(fact{what: acquired, who: a, token: a, ttl: 4 * second})
			s.note(fact{what: acquired, who: b, token: b, ttl: 4 * second})
			for range 4 {
				time.Sleep(second)
				refresh(b)
				s.note(fact{what: renewed, who: b, token: b, ttl: 4 * second})
			}
			s.note(fact{what: passed, who: a, token: a})
			time.Sleep(second)
			s.admin.ZRem(s.ctx(), s.key, b)
			s.note(fact{what: released, who: b, token: b})
		}, ranOut, nil, []string{"  released it"}},
		{"killed by CLIENT KILL", func(s *scene) { // it works on, connects again and releases
			s.usual()
			c := s.client("worker-k")
			c.acquire(30 * second)
			time.Sleep(2 * second)
			s.admin.Do(s.ctx(), "CLIENT", "KILL", "ID", c.rdb.ClientID(s.ctx()).Val())
			c.did(ended, 0)
			time.Sleep(8 * second)
			again := s.client("worker-k")
			again.token = c.token
			again.did(returned, 0)
			again.release()
		}, []incident.Cause{incident.HolderGone}, []string{"had ended by", "whether worker-k worked on without this connection", "released or deleted"}, []string{"  worker-k released it"}},
		{"renews over another connection", func(s *scene) {
			s.usual()
			a, b := s.client("worker-p"), s.client("worker-p")
			a.acquire(6 * second)
			b.token = a.token
			b.renew(2, second, 6*second)
			a.ends()
			b.renew(3, 2*second, 6*second)
			b.release()
		}, []incident.Cause{incident.Overdue}, []string{"renewed 4 times|renewed 5 times", "released or deleted"}, []string{"had ended by"}},
		{"cut off from the server", func(s *scene) {
			link := netfault.New((&net.Dialer{}).DialContext)
			proxy := check.Must(link.Listen("tcp", s.addr))(s)
			s.Cleanup(func() { link.Heal(); _ = proxy.Close() })
			c := s.clientAs("worker-8", "worker-8", proxy.Addr())
			c.acquire(4 * second)
			c.renew(2, second, 4*second)
			link.Partition()
			c.expires()
			next := s.client("worker-9")
			next.acquire(5 * second)
			time.Sleep(second)
			next.release()
		}, []incident.Cause{incident.ExpiredConnected}, []string{"was not seen to end", "was cut off", "renewed 2 times"}, []string{"had ended by"}},
		{"without a name", func(s *scene) {
			c := s.clientAs("worker-n", "", s.addr)
			c.acquire(3 * second)
			c.renew(2, second, 3*second)
			c.ends()
			c.expires()
		}, []incident.Cause{incident.RenewalsStopped}, []string{"no connection with the name worker-n"}, nil},
		{"a hold of a second that expires", func(s *scene) {
			c := s.client("worker-1")
			c.acquire(second)
			c.expires()
		}, ranOut, []string{"never renewed"}, nil},
	}
}

// keepPermit refreshes the permit of a semaphore, and ends those that are older than its timeout.
var keepPermit = redis.NewScript(`redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[1] - ARGV[2])
redis.call('zadd', KEYS[1], ARGV[1], ARGV[3]) return redis.call('pexpire', KEYS[1], ARGV[2])`)

// redissonLock is a lock of Redisson: each release is announced.
type redissonLock struct{ *actor }

func (s *scene) redisson() redissonLock {
	token := uuid.NewString() + ":1"
	return redissonLock{&actor{scene: s, name: token, token: token, rdb: labtest.Client(s.T, s.addr, server.ClientOptions{})}}
}

func (r redissonLock) channel() string { return "redisson_lock__channel:{" + r.key + "}" }

func (r redissonLock) acquire(ttl time.Duration) {
	r.Helper()
	ok, err := acquireField.Run(r.ctx(), r.rdb, []string{r.key}, r.token, ttl.Milliseconds()).Bool()
	check.True(r, ok && err == nil, "acquires %s: %v", r.key, err)
	r.did(acquired, ttl)
}

func (r redissonLock) extend(ttl time.Duration) {
	r.rdb.PExpire(r.ctx(), r.key, ttl)
	r.did(renewed, ttl)
}

func (r redissonLock) release() {
	if had, err := releaseField.Run(r.ctx(), r.rdb, []string{r.key}, r.token, r.channel()).Bool(); had && err == nil {
		r.did(released, 0)
	}
}

func (r redissonLock) passes() { r.expires() }

// single starts a server with arguments, and tells it to the kinds.
func single(tell func(*server.Child), args ...string) func(t *testing.T) (string, []string) {
	return func(t *testing.T) (string, []string) {
		child := servertest.RedisForTest(t, append([]string{"--databases", "2"}, args...)...)
		if tell != nil {
			tell(child)
		}
		return child.Addr(), []string{"-u", "redis://" + child.Addr()}
	}
}

// stages are all kinds. Those of one server are staged at the same time.
func stages() []staging {
	all := []staging{{"one server", single(nil), oneServer()}}
	var restarted, kept, busy, full *server.Child
	take := func(at **server.Child) func(*server.Child) { return func(c *server.Child) { *at = c } }
	hold := func(s *scene, ttl time.Duration) *actor {
		s.usual()
		c := s.client("worker-7")
		c.acquire(ttl)
		time.Sleep(2 * second)
		return c
	}
	ends := func(s *scene, c *actor) { // healthily
		time.Sleep(500 * time.Millisecond)
		c.release()
	}
	all = append(all, staging{"a database is emptied", single(nil), []kind{{"flushed", func(s *scene) {
		hold(s, 30*second)
		s.person(flushed, "FLUSHDB")
		time.Sleep(300 * time.Millisecond)
		next := s.client("worker-8")
		next.acquire(20 * second)
		ends(s, next)
	}, []incident.Cause{incident.Flushed}, []string{"The database was emptied", "gone with its database", "worker-8 acquired it: both had a lease"}, nil}}})
	all = append(all, staging{"another database is emptied", single(nil), []kind{{"not flushed", func(s *scene) {
		other := labtest.Client(s.T, s.addr, server.ClientOptions{DB: 1})
		ctx, stop := context.WithCancel(s.ctx())
		go func() {
			for ctx.Err() == nil {
				other.FlushDB(ctx)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		c := hold(s, 3*second)
		c.expires()
		c.acquire(20 * second)
		ends(s, c)
		stop()
	}, ranOut, nil, []string{"gone with its database", "The database was emptied"}}}})
	all = append(all, staging{"the server evicts", single(take(&full), "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"), []kind{{"evicted", func(s *scene) {
		hold(s, 30*second)
		s.admin.ConfigSet(s.ctx(), "maxmemory", "1mb")
		s.admin.Set(s.ctx(), "ordinary", strings.Repeat("x", 20_000), 0)
		s.happened(evicted)
		s.happened(removed)
	}, nil, nil, []string{"  released it"}}}})
	all = append(all, staging{"the server evicts and reports", single(nil, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl", "--notify-keyspace-events", "Ee"), []kind{{"evicted and reported", func(s *scene) {
		hold(s, 30*second)
		s.admin.ConfigSet(s.ctx(), "maxmemory", "1mb")
		s.admin.Set(s.ctx(), "ordinary", strings.Repeat("x", 20_000), 0)
		s.happened(evicted)
	}, []incident.Cause{incident.Evicted}, []string{"The server evicted"}, nil}}})
	all = append(all, staging{"the server evicts other keys", single(nil, "--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"), []kind{{"not evicted", func(s *scene) {
		ctx, stop := context.WithCancel(s.ctx())
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.admin.Set(ctx, fmt.Sprint("cache:", n), strings.Repeat("x", 100_000), 0)
				time.Sleep(5 * time.Millisecond)
			}
		}()
		s.usual()
		for range 3 {
			c := s.client("worker-7")
			c.acquire(10 * second)
			time.Sleep(second)
			c.release()
		}
		stop()
	}, nil, []string{"No incident"}, nil}}})
	all = append(all, staging{"a restart", single(take(&restarted)), []kind{{"restarted empty", func(s *scene) {
		hold(s, 60*second)
		check.NoError(s, restarted.Kill())
		s.happened(lost)
		s.happened(failed)
		time.Sleep(300 * time.Millisecond)
		check.NoError(s, restarted.Restart(s.ctx()))
		next := s.client("worker-8")
		next.acquire(20 * second)
		time.Sleep(3 * second)
		next.release()
	}, []incident.Cause{incident.Restart}, []string{"A restart of the server lost", "worker-8 acquired it: both had a lease"}, nil}}})
	all = append(all, staging{"a restart with its data", single(take(&kept), "--appendonly", "yes", "--appendfsync", "always"), []kind{{"restarted with its data", func(s *scene) {
		c := hold(s, 60*second)
		check.NoError(s, kept.Kill())
		s.happened(failed)
		time.Sleep(300 * time.Millisecond)
		check.NoError(s, kept.Restart(s.ctx()))
		time.Sleep(3 * second)
		again := s.client("worker-7")
		again.token = c.token
		again.release()
	}, []incident.Cause{incident.Overdue}, []string{"it was restarted", "TTL 1 m"}, []string{"lost by", "A restart"}}}})
	all = append(all, staging{"a busy script", single(take(&busy), "--lua-time-limit", "100"), []kind{{"a script that is killed", func(s *scene) {
		c := s.client("worker-7")
		c.acquire(3 * second)
		c.renew(2, second, 3*second)
		_ = busy
		go labtest.Client(s.T, s.addr, server.ClientOptions{NoRetry: true, Timeout: time.Minute}).Eval(s.ctx(), "while true do end", nil)
		s.happened(failed)
		time.Sleep(5 * second)
		s.admin.ScriptKill(s.ctx())
		s.note(fact{what: passed, who: c.name, token: c.token, at: time.Now().Add(-2 * second)})
		s.note(fact{what: passed, who: c.name, token: c.token})
		time.Sleep(2 * second)
	}, append(ranOut, ""), nil, []string{"had ended by"}}}})
	all = append(all, observedFrom(), fullSync(), failover(), refusing(), minority())
	return all
}

// observedFrom is a recorder that is cut off while the lock is released and acquired again.
func observedFrom() staging {
	var link *netfault.Network
	return staging{"a recorder that is cut off", func(t *testing.T) (string, []string) {
		addr := servertest.RedisForTest(t, "--databases", "2").Addr()
		link = netfault.New((&net.Dialer{}).DialContext)
		proxy := check.Must(link.Listen("tcp", addr))(t)
		t.Cleanup(func() { link.Heal(); _ = proxy.Close() })
		return addr, []string{"-u", "redis://" + proxy.Addr()}
	}, []kind{{"released while nobody looked", func(s *scene) {
		s.usual()
		c := s.client("worker-7")
		c.acquire(60 * second)
		time.Sleep(2 * second)
		link.Partition()
		s.happened(failed)
		time.Sleep(2 * second)
		c.release()
		next := s.client("worker-8")
		next.acquire(60 * second)
		time.Sleep(6 * second)
		link.Heal()
		link.Cut()
		time.Sleep(8 * second)
		next.release()
	}, []incident.Cause{incident.Overdue}, nil, []string{"  worker-7 released it", "lost by the server"}}}}
}

// fullSync is a replica that copies its master anew.
func fullSync() staging {
	var r *servertest.Replicated
	return staging{"a full sync", func(t *testing.T) (string, []string) {
		r = check.Must(servertest.StartReplicated(t.Context(), servertest.ReplicatedOptions{}))(t)
		t.Cleanup(func() { _ = r.Stop() })
		return r.Master().Addr(), []string{"-u", "redis://" + r.Replicas()[0].Addr()}
	}, []kind{{"copied by a full sync", func(s *scene) {
		replica := labtest.Client(s.T, r.Replicas()[0].Addr(), server.ClientOptions{})
		check.NoError(s, replica.Do(s.ctx(), "REPLICAOF", "NO", "ONE").Err())
		check.NoError(s, replica.FlushAll(s.ctx()).Err())
		time.Sleep(2 * second)
		c := s.client("worker-7")
		c.acquire(12 * second)
		time.Sleep(3 * second)
		check.NoError(s, r.Follow(s.ctx(), r.Replicas()[0], r.Master()))
		c.expires()
	}, ranOut, []string{"acquired it, at |holds it, and acquired it earlier"}, []string{"TTL 8", "TTL 9"}}}}
}

// failover is a master that dies before its replica has the lock.
func failover() staging {
	var g *servertest.SentinelGroup
	return staging{"a failover", func(t *testing.T) (string, []string) {
		g = servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
		flags := []string{"--master", servertest.SentinelMaster}
		for _, s := range g.Sentinels() {
			flags = append(flags, "--sentinel", s)
		}
		return g.Master().Addr(), flags
	}, []kind{{"lost by a failover", func(s *scene) {
		replica := labtest.Client(s.T, g.Replicas()[0].Addr(), server.ClientOptions{})
		check.NoError(s, errors.Join(replica.ConfigSet(s.ctx(), "masteruser", "nobody").Err(), replica.ConfigSet(s.ctx(), "masterauth", "none").Err(),
			replica.Do(s.ctx(), "CLIENT", "KILL", "TYPE", "master").Err())) // it gets no more writes
		c := s.client("worker-7")
		c.acquire(60 * second)
		time.Sleep(1500 * time.Millisecond)
		check.NoError(s, g.Master().Kill())
		s.happened(failed)
		labtest.Within(s.T, time.Minute, func() bool { return strings.Contains(replica.Info(s.ctx(), "replication").Val(), "role:master") })
		s.happened(lost)
		time.Sleep(2 * second) // a Sentinel names the new master
		s.happened(lost)
		time.Sleep(2 * second)
		next := s.clientAs("worker-7", "worker-7", g.Replicas()[0].Addr())
		next.token = c.token
		next.again(20 * second) // the same client
		time.Sleep(2 * second)
		next.release()
	}, []incident.Cause{incident.Failover}, []string{"A failover lost", "lost by the server"}, []string{"both had a lease"}}}}
}

// refusing is a cluster that refuses all clients because one master is down.
func refusing() staging {
	var c *servertest.Cluster
	return staging{"a cluster that refuses", func(t *testing.T) (string, []string) {
		c = servertest.ClusterForTest(t, servertest.ClusterOptions{})
		return c.Nodes()[0].Addr(), []string{"--cluster", "-u", "redis://" + c.Nodes()[0].Addr()}
	}, []kind{{"refused", func(s *scene) {
		s.key = "job:{" + keyOf(s.T, c, c.Nodes()[0]) + "}"
		holder := s.client("worker-7")
		holder.acquire(4 * second)
		holder.renew(3, second, 4*second)
		check.NoError(s, c.Nodes()[1].Freeze())
		s.happened(failed)
		holder.renew(6, second, 4*second)
		s.note(fact{what: passed, who: holder.name, token: holder.token})
		check.NoError(s, c.Nodes()[1].Continue())
		time.Sleep(3 * second)
		s.note(fact{what: passed, who: holder.name, token: holder.token})
	}, append(ranOut, ""), nil, []string{"had ended by", "is too short"}}}}
}

// keyOf returns a hash tag of which a node has the slot.
func keyOf(t *testing.T, c *servertest.Cluster, node *server.Child) string {
	t.Helper()
	rdb := labtest.Client(t, node.Addr(), server.ClientOptions{})
	for n := range 1000 {
		tag := fmt.Sprint("tag", n)
		slot := rdb.ClusterKeySlot(t.Context(), tag).Val()
		if owner, err := c.Owner(t.Context(), int(slot)); err == nil && owner == node {
			return tag
		}
	}
	t.Fatal("no key has a slot of the node")
	return ""
}

// minority is a Redlock of which a client gets two of five servers, while another one has three.
func minority() staging {
	var in *server.Independent
	return staging{"a Redlock", func(t *testing.T) (string, []string) {
		in = servertest.IndependentForTest(t, 5)
		var flags []string
		for _, node := range in.Nodes() {
			flags = append(flags, "--redlock", node.Addr())
		}
		return in.Nodes()[0].Addr(), flags
	}, []kind{{"a minority", func(s *scene) {
		on := func(c string, ttl time.Duration, nodes ...*server.Child) {
			for _, node := range nodes {
				labtest.Client(s.T, node.Addr(), server.ClientOptions{}).SetNX(s.ctx(), s.key, c, ttl)
			}
		}
		s.key = "lock:" + s.key
		a, b := strings.ReplaceAll(uuid.NewString(), "-", "")+"00000000", strings.ReplaceAll(uuid.NewString(), "-", "")+"11111111"
		on(a, 20*second, in.Nodes()[:3]...)
		s.note(fact{what: acquired, who: a, token: a, ttl: 20 * second})
		time.Sleep(2 * second)
		on(b, 5*second, in.Nodes()[3:]...)
		time.Sleep(6 * second)
		for _, node := range in.Nodes()[:3] {
			labtest.Client(s.T, node.Addr(), server.ClientOptions{}).Del(s.ctx(), s.key)
		}
		s.note(fact{what: released, who: a, token: a})
	}, nil, []string{"No incident"}, nil}}}
}
