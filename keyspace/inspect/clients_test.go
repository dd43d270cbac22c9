package inspect

import (
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
	f := follow(admin, labelled())
	defer f.Close()
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
	f := follow(userOf(t, admin, readOnly...), labelled())
	defer f.Close()
	s := until(t, f, func(s keyspace.Snapshot) bool {
		return s.Complete && strings.Contains(strings.Join(s.Watch.Limitations, "\n"), "CLIENT LIST")
	})
	check.True(t, len(s.Problems) == 0, "no lock is missed, and it says %q", s.Problems)
}
