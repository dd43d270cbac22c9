//go:build unix

package incidents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/lab/internal/labtest"
	"locktop/lock"
)

// thread returns the n-th thread of a client of Redisson.
func thread(n int) string { return fmt.Sprintf("%d05b3d04-2e62-4ac4-93f7-8a1d1c8bb0f4:1", n) }

// redisson lets the n-th thread hold the lock of Redisson.
func (s *scene) redisson(n int, ttl time.Duration) {
	s.Helper()
	s.do(fmt.Sprintf("HSET %s %s 1", sceneKey, thread(n)), fmt.Sprintf("PEXPIRE %s %d", sceneKey, ttl.Milliseconds()))
	s.recorded("the hold", hasHolder)
}

// unlock releases a lock as Redisson does.
var unlock = redis.NewScript(`redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', 'redisson_lock__channel:{' .. KEYS[1] .. '}', 0)`)

// unlocked ends a hold, and returns when the recording does not have the lock any more.
func (s *scene) unlocked() {
	s.Helper()
	check.NoError(s.T, unlock.Run(s.Context(), s.rdb, []string{sceneKey}).Err())
	labtest.RecordedUntil(s.T, s.file, "no holder", func(snap keyspace.Snapshot) bool { return !hasLock(snap, hasHolder) })
}

// subscribed lets a client of Redisson wait for the lock.
func (s *scene) subscribed() {
	s.Helper()
	sub := servertest.Subscribe(s.Context(), s.rdb, "redisson_lock__channel:{"+sceneKey+"}")
	s.Cleanup(func() { _ = sub.Close() })
	check.Must(sub.Receive(s.Context()))(s)
}

// own returns a client of package lock with a connection that has its name, and a network that can fail.
func (s *scene) own(name string) (*lock.Client, *netfault.Network) {
	s.Helper()
	network := netfault.New(new(net.Dialer).DialContext)
	rdb := labtest.Client(s.T, servertest.AddrOf(s.rdb), server.ClientOptions{Name: name, Dial: network.Dial, PoolSize: 1})
	client := labtest.LockClient(s.T, rdb, name)
	s.Cleanup(network.Heal)
	return client, network
}

// acquired acquires a lock, and returns when the recording has its connection.
func (s *scene) acquired(l lock.Locker) *lock.Lease {
	s.Helper()
	lease := check.Must(l.Lock(s.Context()))(s.T)
	s.Cleanup(func() { runtime.KeepAlive(lease) }) // without it, nothing renews the lease
	s.recorded("its connection", isConnected)
	return lease
}

// usually lets the lock be held n times.
func (s *scene) usually(n int, hold time.Duration) {
	for range n {
		<-s.wait("worker-2", hold)
	}
}

// behind cuts the replicas of a master off: they miss what is written from now on.
func behind(t *testing.T, master *server.Child, replicas ...*server.Child) {
	t.Helper()
	for _, r := range replicas {
		check.NoError(t, labtest.Client(t, r.Addr(), server.ClientOptions{}).ConfigSet(t.Context(), "masterauth", "wrong").Err())
	}
	rdb := labtest.Client(t, master.Addr(), server.ClientOptions{})
	check.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	labtest.Within(t, labtest.LongestWait, func() bool {
		return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "connected_slaves:0\r\n")
	})
}

// restarts ends the server of the lock, if it is held, and starts it again.
func (s *scene) restarts() {
	s.Helper()
	if s.rdb.Exists(s.Context(), sceneKey).Val() == 0 {
		s.holdRecorded()
	}
	check.NoError(s.T, errors.Join(s.server.Kill(), s.server.Restart(s.Context())))
}

// failsOver ends the server of the lock, whose replica then takes over.
func (s *scene) failsOver() {
	s.Helper()
	s.holdRecorded()
	check.NoError(s.T, s.server.Kill())
}

// holdRecorded lets worker-7 hold the lock, and returns when the recording has it.
func (s *scene) holdRecorded() {
	s.Helper()
	s.hold(time.Minute)
	s.recorded("the lock", hasHolder)
}

func underSentinels(t *testing.T) *scene {
	g := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
	s := record(t, g.Master().Addr(), "--master", servertest.SentinelMaster, "--sentinel", strings.Join(g.Sentinels(), ","))
	s.server = g.Master()
	behind(t, g.Master(), g.Replicas()...)
	return s
}

// inCluster returns a scene whose server is the master of the lock.
func inCluster(t *testing.T, o servertest.ClusterOptions) *scene {
	c := servertest.ClusterForTest(t, o)
	rdb := labtest.Client(t, c.Addrs()[0], server.ClientOptions{})
	owner := check.Must(c.Owner(t.Context(), int(rdb.ClusterKeySlot(t.Context(), sceneKey).Val())))(t)
	s := record(t, owner.Addr(), "--cluster", "-u", "redis://"+c.Addrs()[0])
	s.server, s.cluster = owner, c
	return s
}

// variants are incidents that differ from the commonest ones.
func variants() []staged {
	return []staged{
		{incident.Failover, "by Sentinels", "A failover lost lock:nightly", underSentinels, (*scene).failsOver},
		{incident.Failover, "in a cluster", "A failover lost lock:nightly", func(t *testing.T) *scene {
			s := inCluster(t, servertest.ClusterOptions{Replicas: 1})
			behind(t, s.server, s.cluster.Nodes()[3:]...)
			return s
		}, (*scene).failsOver},
		{incident.Failover, "behind one address", "A failover lost lock:nightly", func(t *testing.T) *scene {
			r := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{})
			var to atomic.Pointer[server.Child]
			to.Store(r.Master())
			network := netfault.New(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, to.Load().Addr())
			})
			p := check.Must(network.Listen("tcp", ""))(t)
			t.Cleanup(func() { _ = p.Close() })
			s := record(t, r.Master().Addr(), "-u", "redis://"+p.Addr())
			check.NoError(t, r.Promote(t.Context(), r.Replicas()[0]))
			s.server = r.Master()
			s.failsOver()
			<-time.After(2 * time.Second) // the address leads nowhere
			to.Store(r.Replicas()[0])
			return s
		}, func(*scene) {}},
		{incident.Failover, "by REPLICAOF", "A failover lost lock:nightly", nil, func(s *scene) {
			other := servertest.RedisForTest(s.T, "--repl-diskless-sync-delay", "0")
			s.holdRecorded()
			host, port, _ := net.SplitHostPort(other.Addr())
			s.do("REPLICAOF " + host + " " + port)
		}},
		{incident.Restart, "after an outage of 3 s", "A restart of the server lost lock:nightly", nil, func(s *scene) {
			s.holdRecorded()
			check.NoError(s.T, s.server.Kill())
			<-time.After(3 * time.Second)
			check.NoError(s.T, s.server.Restart(s.Context()))
		}},
		{incident.Restart, "before the Sentinels notice it", "A restart of the server lost lock:nightly", underSentinels, (*scene).restarts},
		{incident.Restart, "in a cluster", "A restart of the server lost lock:nightly", func(t *testing.T) *scene {
			return inCluster(t, servertest.ClusterOptions{})
		}, (*scene).restarts},
		{incident.Restart, "with an older file", "A restart of the server lost lock:nightly", func(t *testing.T) *scene {
			return newScene(t, "--dbfilename", "old.rdb")
		}, func(s *scene) {
			s.do("SET ordinary value", "SAVE")
			s.redisson(1, time.Minute)
			s.restarts()
		}},
		{incident.Flushed, "FLUSHALL, a lock of Redisson", "The database was emptied", nil, func(s *scene) {
			s.redisson(1, time.Minute)
			s.recordedUntil(3*time.Second, hasHolder) // its changes are reported by now
			s.do("FLUSHALL")
		}},
		{incident.Evicted, "by allkeys-lru, a lock of Redisson", "allkeys-lru", func(t *testing.T) *scene {
			return newScene(t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb", "--notify-keyspace-events", "Ee")
		}, func(s *scene) {
			s.redisson(1, time.Minute)
			s.recordedUntil(3*time.Second, hasHolder)
			s.do("CONFIG SET maxmemory 1mb")
			_ = s.rdb.Set(s.Context(), "ordinary", strings.Repeat("x", 2000), 0).Err() // it may be too large
		}},
		{incident.HolderGone, "by CLIENT KILL, with a watchdog", "The connection of worker-7", nil, func(s *scene) {
			client, network := s.own("worker-7")
			s.acquired(check.Must(client.Mutex(sceneKey, lock.Options{TTL: 6 * time.Second}))(s.T))
			s.recorded("renewals", func(l *keyspace.Lock) bool { return l.Renewals > 1 })
			network.Partition() // it does not come back
			s.kill("worker-7")
		}},
		{incident.HolderGone, "the holder of a permit", "The connection of worker-7", nil, func(s *scene) {
			client, network := s.own("worker-7")
			s.acquired(check.Must(client.Semaphore(sceneKey, 1, lock.Options{TTL: 8 * time.Second}))(s.T))
			s.wait("worker-2", 0)
			network.Partition()
			s.kill("worker-7")
		}},
		{incident.HolderGone, "the writer of a lock for readers", "The connection of worker-7", nil, func(s *scene) {
			client, network := s.own("worker-7")
			_, writer := labtest.Sides(s.T, client, sceneKey, lock.Options{TTL: 8 * time.Second})
			s.acquired(writer)
			network.Partition()
			s.kill("worker-7")
		}},
		{incident.HolderGone, "of a fair lock with two waiters", "2 clients waited", nil, func(s *scene) {
			client, network := s.own("worker-7")
			s.acquired(check.Must(client.Fair(sceneKey, lock.Options{TTL: 10 * time.Second}))(s.T))
			for range 2 {
				s.waitFor(check.Must(labtest.LockClient(s.T, s.rdb, "worker-2").Fair(sceneKey, lock.Options{}))(s.T), 0)
			}
			s.recorded("two waiters", func(l *keyspace.Lock) bool { return l.WaiterCount() == 2 })
			network.Partition()
			s.kill("worker-7")
		}},
		{incident.ExpiredConnected, "a cut network, with a watchdog", "worker-7 held lock:nightly until its lease ran out", nil, func(s *scene) {
			client, network := s.own("worker-7")
			s.acquired(check.Must(client.Mutex(sceneKey, lock.Options{TTL: 6 * time.Second}))(s.T))
			s.recorded("renewals", func(l *keyspace.Lock) bool { return l.Renewals > 1 })
			network.Partition()
		}},
		{incident.ExpiredConnected, "without renewals, far longer than usual", "worker-7 held lock:nightly until its lease ran out", nil, func(s *scene) {
			s.usually(6, 300*time.Millisecond)
			s.hold(8 * time.Second)
			s.recorded("its connection", isConnected)
			s.wait("worker-2", 300*time.Millisecond)
		}},
		{incident.RenewalsStopped, "kill -9 of a process", "did not renew it after", nil, func(s *scene) { s.process(syscall.SIGKILL) }},
		{incident.RenewalsStopped, "SIGSTOP of a process", "did not renew it after", nil, func(s *scene) { s.process(syscall.SIGSTOP) }},
		{incident.RenewalsStopped, "a watchdog of Redisson", "did not renew it after", nil, func(s *scene) {
			s.subscribed()
			s.redisson(1, 3*time.Second)
			for range 3 {
				<-time.After(time.Second)
				s.do("PEXPIRE " + sceneKey + " 3000")
			}
		}},
		{incident.Expired, "a lease of Redisson", "did not release it", nil, func(s *scene) {
			s.subscribed()
			s.redisson(1, 4*time.Second)
		}},
		{incident.TTLTooShort, "four in a row, without names", "is too short", nil, func(s *scene) {
			for range 4 {
				labtest.Within(s.T, labtest.LongestWait, func() bool {
					return s.rdb.SetNX(s.Context(), sceneKey, tokenOf("worker-7"), 1500*time.Millisecond).Val()
				})
				s.recorded("the lock", hasHolder)
			}
		}},
		{incident.TTLTooShort, "our lock without renewals", "is too short", nil, func(s *scene) {
			client, _ := s.own("worker-7")
			s.acquired(check.Must(client.Mutex(sceneKey, lock.Options{TTL: 4 * time.Second, Renew: lock.Renew{Off: true}}))(s.T))
			s.wait("worker-2", 2*time.Second)
		}},
		{incident.Overdue, "with renewals", "renewed", nil, func(s *scene) {
			s.usually(7, 100*time.Millisecond)
			client, _ := s.own("worker-7")
			lease := s.acquired(check.Must(client.Mutex(sceneKey, lock.Options{TTL: 3 * time.Second}))(s.T))
			s.wait("worker-2", 0)
			s.recordedUntil(8*time.Second, isConnected)
			_ = lease.Unlock(s.Context())
		}},
		{incident.Overdue, "a lock of Redisson", "held lock:nightly for", nil, func(s *scene) {
			for range 7 {
				s.redisson(1, 30*time.Second)
				s.unlocked()
			}
			s.subscribed()
			s.redisson(2, 30*time.Second)
			s.recordedUntil(12*time.Second, isWaitedFor)
			s.unlocked()
		}},
		{incident.NeverExpires, "a lock of package lock that lost its TTL", "The connection of worker-7", nil, func(s *scene) {
			client, network := s.own("worker-7")
			s.acquired(check.Must(client.Mutex(sceneKey, lock.Options{TTL: time.Minute}))(s.T))
			s.do("PERSIST " + sceneKey)
			network.Partition()
			s.kill("worker-7")
		}},
		{incident.SlowHandOff, "a poller of 5 s", "Nobody held lock:nightly from", nil, func(s *scene) { s.pollers(5*time.Second, 1) }},
		{incident.SlowHandOff, "a poller of 3 s, again and again", "lock:nightly was free 3 times", nil, func(s *scene) { s.pollers(3*time.Second, 3) }},
		{incident.Deadlock, "of three", "was in a deadlock of 3 owners", nil, func(s *scene) {
			s.fair(sceneKey, 1, 2)
			s.fair("lock:second", 2, 3)
			s.fair("lock:third", 3, 1)
			s.recordedUntil(5*time.Second, isWaitedFor)
			for _, key := range []string{"lock:second", "lock:third", sceneKey} {
				s.do("DEL redisson_lock_queue:{"+key+"} redisson_lock_timeout:{"+key+"}", "DEL "+key, "PUBLISH redisson_lock__channel:{"+key+"} 0")
			}
		}},
		{incident.Deleted, "a lock of Redisson", "A client deleted lock:nightly", nil, func(s *scene) {
			for range 2 {
				s.redisson(1, 30*time.Second)
				s.unlocked()
			}
			s.redisson(2, time.Minute)
			s.recordedUntil(3*time.Second, hasHolder)
			s.do("DEL " + sceneKey)
		}},
		{incident.Stolen, "UNLINK, and another client at once", "both had a lease until", nil, func(s *scene) {
			s.waitBehind("worker-3")
			_, err := s.rdb.TxPipelined(s.Context(), func(p redis.Pipeliner) error {
				p.Unlink(s.Context(), sceneKey)
				return p.SetNX(s.Context(), sceneKey, tokenOf("worker-7"), time.Minute).Err()
			})
			check.NoError(s.T, err)
		}},
		{incident.Stolen, "a lock of Redisson", "from " + thread(2), nil, func(s *scene) {
			for range 2 {
				s.redisson(1, 30*time.Second)
				s.unlocked()
			}
			s.redisson(2, time.Minute)
			s.recordedUntil(3*time.Second, hasHolder)
			_, err := s.rdb.TxPipelined(s.Context(), func(p redis.Pipeliner) error {
				p.HSet(s.Context(), sceneKey, thread(3), 1)
				return p.HDel(s.Context(), sceneKey, thread(2)).Err()
			})
			check.NoError(s.T, err)
		}},
		{incident.HolderGone, "while its slot is moved", "The connection of worker-7", func(t *testing.T) *scene {
			s := inCluster(t, servertest.ClusterOptions{})
			holder := s.hold(15 * time.Second)
			s.recorded("its connection", isConnected)
			slot := int(s.rdb.ClusterKeySlot(t.Context(), sceneKey).Val())
			to := s.cluster.Another(slot)
			check.NoError(t, s.cluster.MoveSlot(t.Context(), slot, to))
			there := labtest.Client(t, to.Addr(), server.ClientOptions{Name: "worker-7"})
			check.NoError(t, there.PExpire(t.Context(), sceneKey, 15*time.Second).Err())
			s.recorded("its new node", func(l *keyspace.Lock) bool { return l.Node == to.Addr() && isConnected(l) })
			s.recordedUntil(3*time.Second, isConnected)
			_ = errors.Join(holder.Close(), there.Close())
			return s
		}, func(*scene) {}},
		{incident.Contended, "by clients of package lock", "is only contended: nothing failed", nil, func(s *scene) { s.busy(4) }},
	}
}

// kill ends the connections with a name.
func (s *scene) kill(name string) {
	s.Helper()
	for line := range strings.Lines(s.rdb.ClientList(s.Context()).Val()) {
		if strings.Contains(line, " name="+name+" ") {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			s.do("CLIENT KILL ID " + id)
		}
	}
}

// process lets a process hold the lock, and sends it a signal.
func (s *scene) process(signal syscall.Signal) {
	s.Helper()
	args := []string{"load", "-u", "redis://" + servertest.AddrOf(s.rdb), "--prefix", "lock:", "--hold", "1h", "--ttl", "3s", "--duration", "0"}
	load := labtest.Start(s.T, append(args, "--clients", "1", "--keys", "1")...)
	labtest.RecordedUntil(s.T, s.file, "renewals", func(snap keyspace.Snapshot) bool {
		for _, l := range snap.Locks {
			s.key = l.Key
			return l.Renewals > 2
		}
		return false
	})
	load.Signal(signal)
}

// A queue of a fair lock as Redisson stores it, without dead waiters.
var tryFair = redis.NewScript(`
local first = redis.call('LINDEX', KEYS[2], 0)
if redis.call('EXISTS', KEYS[1]) == 0 and (not first or first == ARGV[1]) then
  if first then redis.call('LPOP', KEYS[2]) redis.call('ZREM', KEYS[3], first) end
  redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 600000)
  return 1
end
if not redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  redis.call('RPUSH', KEYS[2], ARGV[1]) redis.call('ZADD', KEYS[3], 99999999999999, ARGV[1])
end
return 0`)

// fairOwner is a thread that takes fair locks.
type fairOwner struct {
	rdb server.Client
	id  string
}

func (o fairOwner) try(ctx context.Context, key string) bool {
	n, err := tryFair.Run(ctx, o.rdb, []string{key, "redisson_lock_queue:{" + key + "}", "redisson_lock_timeout:{" + key + "}"}, o.id).Int()
	return err == nil && n == 1
}

// pollers lets a client hold the lock while another one looks seldom.
func (s *scene) pollers(every time.Duration, n int) {
	s.Helper()
	for range n {
		o := fairOwner{s.rdb, thread(1)}
		labtest.Within(s.T, labtest.LongestWait, func() bool { return o.try(s.Context(), sceneKey) })
		polls := make(chan struct{})
		go func() {
			defer close(polls)
			for next := (fairOwner{s.rdb, thread(2)}); !next.try(s.Context(), sceneKey); {
				<-time.After(every)
			}
			<-time.After(time.Second)
			s.unlocked()
		}()
		s.recorded("a waiter", isWaitedFor)
		s.unlocked()
		<-polls
	}
}

// busy lets n clients take turns without a pause.
func (s *scene) busy(n int) {
	ctx, cancel := context.WithTimeout(s.Context(), 45*time.Second)
	s.Cleanup(cancel)
	for i := range n {
		m := check.Must(labtest.LockClient(s.T, s.rdb, fmt.Sprint("worker-", i)).Mutex(sceneKey, lock.Options{}))(s.T)
		go func() {
			for ctx.Err() == nil {
				if lease, err := m.Lock(ctx); err == nil {
					<-time.After(300 * time.Millisecond)
					_ = lease.Unlock(s.Context())
				}
			}
		}()
	}
	<-ctx.Done()
}
