package keyspace

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// heaviest is what the elements that would be read of a value may take in the
// memory of the server, all together: bytes that take it about a millisecond. Above
// it none of them is read, for Redis hands out elements only whole, however big.
const heaviest = 2 << 20

// weigh returns the keys with those marked that are too heavy to be read. Strings
// never are, and what was read before is not weighed again. Nothing is marked on
// a server that cannot tell, or does not tell this user.
//
// It is exact for collections of up to 256 elements. Of larger ones as many are
// looked at and the rest is taken to be like them, so that a single huge element
// among thousands may be missed.
func (r *reader) weigh(ctx context.Context, refs []ref) ([]ref, error) {
	refs = slices.Clone(refs)
	for some := range slices.Chunk(unweighed(refs), batch) {
		weights := make([]*redis.IntCmd, len(some))
		sizes := make([]*redis.IntCmd, len(some))
		err := r.ask(ctx, "weigh keys", func(p redis.Pipeliner) {
			for i, k := range some {
				weights[i] = p.MemoryUsage(ctx, k.key, elements)
				sizes[i] = askSize(ctx, p, *k)
			}
		})
		if err != nil {
			return nil, err
		}
		for i, k := range some {
			k.heavy = tooHeavy(weights[i].Val(), sizes[i].Val())
		}
	}
	return refs, nil
}

// unweighed returns the keys whose weight matters and is not known.
func unweighed(refs []ref) []*ref {
	var all []*ref
	for i := range refs {
		if k := &refs[i]; !k.again && slices.Contains(collections[:], k.typ) {
			all = append(all, k)
		}
	}
	return all
}

// collections are the types that have elements.
var collections = [...]string{"hash", "list", "set", "zset", "stream"}

// tooHeavy reports whether the first elements of a value of so many bytes and
// elements are more than may be read.
func tooHeavy(bytes, size int64) bool {
	if size > elements {
		bytes = bytes / size * elements
	}
	return bytes > heaviest
}
