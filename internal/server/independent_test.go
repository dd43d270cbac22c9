package server_test

import (
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

func TestANodeThatWasOffRemembersUnlessItIsMeantToForget(t *testing.T) {
	t.Parallel()
	set := servertest.IndependentForTest(t, 2)
	node := set.Nodes()[1]
	ctx := t.Context()
	for _, c := range []struct {
		empty bool
		want  int64
	}{{false, 1}, {true, 0}} {
		rdb := client(t, node.Addr())
		check.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
		check.NoError(t, set.Down(2))
		check.Require(t, rdb.Ping(ctx).Err() != nil, "a node that is down answers")
		check.ErrorIs(t, client(t, set.Nodes()[0].Addr()).Ping(ctx).Err(), nil, "the other node went down with it")
		for range 2 { // the second time the server is running already
			check.NoError(t, set.Up(ctx, 2, c.empty))
		}
		got := client(t, node.Addr()).Exists(ctx, "k").Val()
		check.True(t, got == c.want, "empty %t: %d keys, want %d", c.empty, got, c.want)
	}
}
