package inspect

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// labelled returns options with a format of tokens that contain a label.
func labelled() ScanOptions {
	f := tokens()
	decode := f.Decode
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l, sure := decode(e)
		l.Holders[0].Label = strings.TrimPrefix(e.Value, "token:")
		return l, sure
	}
	return ScanOptions{Formats: []keyspace.Format{f}}
}

// A holder is marked disconnected only if its connection was seen before. If no
// connection ever had the holder's name, nothing is known.
func TestAHolderIsMissedOnlyIfItsConnectionWasSeen(t *testing.T) {
	testtier.Long(t, "it samples connections for seconds")
	t.Parallel()
	admin := realServer(t)
	there := connect(t, redis.Options{Addr: admin.Options().Addr, ClientName: "there"})
	leaving := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, ClientName: "leaving"})
	do(t, there, "SET", "lock:there", "token:there")
	do(t, leaving, "SET", "lock:leaving", "token:leaving")
	do(t, admin, "SET", "lock:nameless", "token:nameless")
	f := watch(t, admin, labelled())
	logCommands(t, admin)
	first := until(t, f, func(s keyspace.Snapshot) bool {
		return s.Complete && slices.ContainsFunc(logged(t, admin), func(argv []string) bool {
			return slices.Equal(argv, []string{"client", "list"})
		})
	})
	check.DeepEqual(t, missing(first), []string(nil), "all are there, and it misses")
	clients := keyspace.ParseClients(admin.ClientList(t.Context()).Val()) // Redis 6.0 has no CLIENT INFO
	at := slices.IndexFunc(clients, func(c keyspace.Client) bool { return c.Name == "there" })
	until(t, f, func(s keyspace.Snapshot) bool {
		return slices.Equal(addresses(s), []string{"somewhere", "", clients[at].Addr})
	})
	check.NoError(t, leaving.Close())
	until(t, f, func(s keyspace.Snapshot) bool { return slices.Equal(missing(s), []string{"leaving"}) })

	back := connect(t, redis.Options{Addr: admin.Options().Addr, ClientName: "leaving"})
	do(t, back, "PING")
	until(t, f, func(s keyspace.Snapshot) bool { return missing(s) == nil })
}

// addresses returns the addresses of the holders, by key; that of "leaving" is only known or not.
func addresses(s keyspace.Snapshot) []string {
	var all []string
	for _, l := range s.Locks {
		addr := l.Holders[0].Addr
		if l.Holders[0].Label == "leaving" && addr != "" {
			addr = "somewhere"
		}
		all = append(all, addr)
	}
	return all
}

// missing returns the labels of holders that are no longer connected.
func missing(s keyspace.Snapshot) []string {
	var all []string
	for _, l := range s.Locks {
		if h := l.Holders[0]; !h.DisconnectedAt.IsZero() && h.DisconnectedAt.Before(s.At.Add(time.Second)) {
			all = append(all, h.Label)
		}
	}
	return all
}

func TestWithoutClientListTheLimitationIsReported(t *testing.T) {
	testtier.Long(t, "it samples connections for seconds")
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "lock:a", "token:somebody")
	f := watch(t, userOf(t, admin, readOnly...), labelled())
	s := until(t, f, func(s keyspace.Snapshot) bool {
		return s.Complete && strings.Contains(strings.Join(s.Watch.Limitations, "\n"), "CLIENT LIST")
	})
	check.True(t, len(s.Problems) == 0, "no lock is missed, and it says %q", s.Problems)
}

func TestAWatchOfAHolderSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "lock:a", "token:x", "PX", 60_000)
	tracking := append(slices.Clone(readOnly), "+client|tracking")
	for _, c := range []struct {
		rights []string
		want   string
	}{
		{tracking, "may not run CLIENT LIST"},
		{append(slices.Clone(readOnly), "+client|list"), "does not report changes"},
		{append(slices.Clone(tracking), "+client|list", "-info"), "may not run INFO"},
	} {
		scanner := NewScanner(userOf(t, admin, c.rights...), justTokens())
		l, err := scanner.ReadLock(t.Context(), "lock:a")
		check.Require(t, err == nil && l != nil, "%v, %v", l, err)
		_, err = scanner.WatchHolder(t.Context(), *l, l.Holders[0], nil, time.Minute, func(Investigation) {})
		check.True(t, err != nil && strings.Contains(err.Error(), c.want),
			"%v: the error is %v, want %q", c.rights[len(c.rights)-1], err, c.want)
	}
	shared := keyspace.Lock{Key: "lock:a", Holders: []keyspace.Holder{{ID: "1"}, {ID: "2"}}}
	_, err := NewScanner(admin, justTokens()).WatchHolder(t.Context(), shared, shared.Holders[0], nil, time.Minute, nil)
	check.ErrorContains(t, err, "share one deadline", "two holders with one deadline")
}

// One that ends before it has begun says nothing of the lock, and leaves no connection behind.
func TestAWatchOfAHolderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "lock:a", "token:x", "PX", 60_000)
	scanner := NewScanner(admin, justTokens())
	l, err := scanner.ReadLock(t.Context(), "lock:a")
	check.Require(t, err == nil && l != nil, "%v, %v", l, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = scanner.WatchHolder(ctx, *l, l.Holders[0], nil, time.Minute, nil)
	check.ErrorContains(t, err, "ended before it had begun")
	waitFor(t, func() bool { return !strings.Contains(admin.ClientList(t.Context()).Val(), "flags=t") })
}

func TestOfTooManyClientsTheKnownAreListed(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	for range maxClientsForOne + 1 {
		c := check.Must(net.Dial("tcp", admin.Options().Addr))(t)
		defer c.Close()
	}
	waitFor(t, func() bool { return strings.Count(admin.ClientList(t.Context()).Val(), "\n") > maxClientsForOne })
	scanner := NewScanner(admin, justTokens())
	_, _, err := scanner.Clients(t.Context(), nil)
	check.ErrorContains(t, err, "are too many to list")
	id := check.Must(admin.ClientID(t.Context()).Result())(t)
	list, all, err := scanner.Clients(t.Context(), []int64{id})
	if version, _ := InfoValue(admin.Info(t.Context(), "server").Val(), "redis_version"); strings.HasPrefix(version, "6.0.") {
		check.ErrorContains(t, err, "are too many to list")
		return
	}
	check.True(t, err == nil && !all && len(list) == 1 && list[0].ID == id, "%+v, all=%v, %v", list, all, err)
}

// waitFor waits until a condition of a server is true.
func waitFor(t testing.TB, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); {
		check.Require(t, !time.Now().After(until), "it does not happen within 20 s")
	}
}
