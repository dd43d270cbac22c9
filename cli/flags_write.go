package cli

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"locktop/keyspace/formats"
	"locktop/keyspace/release"
)

// writeFlags holds the flags that permit actions on locks.
type writeFlags struct {
	write      bool
	production bool
}

func (r *writeFlags) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Acting", pflag.ContinueOnError)
	set.SortFlags = false
	set.BoolVar(&r.write, "write", false, "let x break locks, after a question; what is done is written to an audit log")
	set.BoolVar(&r.production, "production", false, "have the name of a lock typed before anything is done to it")
	return set
}

// check returns an error for --write with all databases, where one name may stand
// for several keys.
func (r *writeFlags) check(c *connFlags) error {
	if r.write && c.db.all {
		return usageErrorf("say which with -n", "--write acts on the locks of one database")
	}
	return nil
}

// breakerOf returns an executor for the locks of the servers of v. It writes its
// actions to log.
func breakerOf(ctx context.Context, v *servers, log release.AuditLog) *release.Executor {
	nodes := make(map[string]redis.UniversalClient)
	where, err := v.where(ctx)
	if err != nil { // use the servers known so far
		where = v.endpoints()
	}
	for _, e := range where {
		if rdb, err := v.client(e); err == nil {
			nodes[e.addr] = rdb
		}
	}
	return release.NewExecutor(nodes, formats.All(), log)
}
