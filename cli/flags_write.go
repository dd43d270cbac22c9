package cli

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// writeFlags are what the user lets the screen do.
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

// check refuses to act where one name stands for several keys.
func (r *writeFlags) check(c *connFlags) error {
	if r.write && c.db.all {
		return usageErrorf("say which with -n", "--write acts on the locks of one database")
	}
	return nil
}

// breakerOf changes the locks of the servers, and writes down what it does.
func breakerOf(ctx context.Context, v *servers, log keyspace.AuditLog) *keyspace.ForceReleaser {
	nodes := make(map[string]redis.UniversalClient)
	where, err := v.where(ctx)
	if err != nil { // then those that are known
		where = v.endpoints()
	}
	for _, e := range where {
		if rdb, err := v.client(e); err == nil {
			nodes[e.addr] = rdb
		}
	}
	return keyspace.NewForceReleaser(nodes, formats.All(), log)
}
