package servertest_test

import (
	"fmt"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// While a slot moves, each of two masters has some of its keys. After the move
// the other master has all of them.
func TestASlotMovesFromOneMasterToAnother(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	t.Parallel()
	c := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	const slot = 0 // a slot of the first master
	from, to := c.Nodes()[0], c.Nodes()[2]
	rdb := client(t, from.Addr())
	tag := tagIn(t, rdb, slot)
	for i := range 4 {
		check.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("{%s}:%d", tag, i), "v", 0).Err())
	}
	m := c.HalfMigrationForTest(t, slot, to, 3)
	here, there := rdb.DBSize(t.Context()).Val(), client(t, to.Addr()).DBSize(t.Context()).Val()
	check.True(t, here == 1 && there == 3, "%d keys are left and %d have moved", here, there)
	var said []string
	for i := range 4 {
		if err := rdb.Get(t.Context(), fmt.Sprintf("{%s}:%d", tag, i)).Err(); err != nil {
			said = append(said, err.Error())
		}
	}
	check.True(t, len(said) == 3 && strings.HasPrefix(said[0], fmt.Sprintf("ASK %d %s", slot, to.Addr())),
		"the owner says %q of the keys that have moved", said)
	check.NoError(t, m.Finish(t.Context()))
	owner, err := c.Owner(t.Context(), slot)
	check.True(t, owner == to && client(t, to.Addr()).DBSize(t.Context()).Val() == 4, "it is not where it should be: %v", err)
}

// tagIn returns a hash tag whose keys are in a slot.
func tagIn(t *testing.T, rdb server.Client, slot int64) string {
	t.Helper()
	for i := 0; ; i++ {
		tag := fmt.Sprint("t", i)
		n := check.Must(rdb.ClusterKeySlot(t.Context(), tag).Result())(t)
		if n == slot {
			return tag
		}
	}
}
