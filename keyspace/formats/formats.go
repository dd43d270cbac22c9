// Package formats knows how lock libraries store their locks in Redis. Each
// file is about one library or one custom, with samples of what it leaves
// behind. To teach locktop a library is to write such a file and to list it in
// All.
package formats

import "locktop/keyspace"

// All returns every format, the most particular first: where several are
// equally sure of a key, the first has it.
func All() []keyspace.Format {
	return []keyspace.Format{
		locktop(),
		locktopReentrant(),
		locktopRW(),
		redissonRW(),
		redisson(),
		redsync(),
		redislock(),
		hashReentrant(),
		setNX(),
	}
}
