package inspect

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

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
		_, err = scanner.WatchHolder(t.Context(), *l, l.Holders[0], nil, func(Investigation) {})
		check.True(t, err != nil && strings.Contains(err.Error(), c.want),
			"%v: the error is %v, want %q", c.rights[len(c.rights)-1], err, c.want)
	}
	shared := keyspace.Lock{Key: "lock:a", Holders: []keyspace.Holder{{ID: "1"}, {ID: "2"}}}
	_, err := NewScanner(admin, justTokens()).WatchHolder(t.Context(), shared, shared.Holders[0], nil, nil)
	check.ErrorContains(t, err, "share one deadline", "two holders with one deadline")
}

// Its end is no error, and leaves no connection behind.
func TestAWatchOfAHolderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "lock:a", "token:x", "PX", 60_000)
	scanner := NewScanner(admin, justTokens())
	l, err := scanner.ReadLock(t.Context(), "lock:a")
	check.Require(t, err == nil && l != nil, "%v, %v", l, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := scanner.WatchHolder(ctx, *l, l.Holders[0], nil, nil)
	check.True(t, (err == nil || errors.Is(err, context.Canceled)) && !got.Named, "%+v, %v", got, err)
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
