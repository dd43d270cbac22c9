package cli

import (
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// rights are what the user lets the screen do.
type rights struct {
	write      bool
	production bool
}

func (r *rights) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Acting", pflag.ContinueOnError)
	set.SortFlags = false
	set.BoolVar(&r.write, "write", false, "let x break locks, after a question; what is done is written to an audit log")
	set.BoolVar(&r.production, "production", false, "have the name of a lock typed before anything is done to it")
	return set
}

// breakerOf changes the locks of one server, and writes down what it does.
func breakerOf(rdb *redis.Client, log keyspace.Journal) *keyspace.Breaker {
	nodes := map[string]redis.UniversalClient{rdb.Options().Addr: rdb}
	return keyspace.NewBreaker(nodes, formats.All(), log)
}
