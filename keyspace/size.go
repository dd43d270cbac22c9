package keyspace

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxElementBytes is what the elements that would be read of a value may take in the
// memory of the server, all together: bytes that take it about a millisecond. Above
// it none of them is read, for Redis hands out elements only whole, however big.
const maxElementBytes = 2 << 20

// checkSizes returns the keys with those marked that are too heavy to be read. Strings
// never are, and what was read before is not weighed again. Nothing is marked on
// a server that cannot tell, or does not tell this user.
//
// It is exact for collections of up to 256 elements. Of larger ones as many are
// looked at and the rest is taken to be like them, so that a single huge element
// among thousands may be missed.
func (r *reader) checkSizes(ctx context.Context, refs []keyRef) ([]keyRef, error) {
	refs = slices.Clone(refs)
	for some := range slices.Chunk(sizeUnknown(refs), batchSize) {
		weights := make([]*redis.IntCmd, len(some))
		sizes := make([]*redis.IntCmd, len(some))
		err := r.pipelined(ctx, "weigh keys", func(p redis.Pipeliner) {
			for i, k := range some {
				weights[i] = p.MemoryUsage(ctx, k.key, maxElements)
				sizes[i] = queueSize(ctx, p, *k)
			}
		})
		if err != nil {
			return nil, err
		}
		for i, k := range some {
			k.oversized = isOversized(weights[i].Val(), sizes[i].Val())
		}
	}
	return refs, nil
}

// sizeUnknown returns the keys whose weight matters and is not known.
func sizeUnknown(refs []keyRef) []*keyRef {
	var all []*keyRef
	for i := range refs {
		if k := &refs[i]; !k.sizeKnown && slices.Contains(collections[:], k.typ) {
			all = append(all, k)
		}
	}
	return all
}

// collections are the types that have elements.
var collections = [...]string{"hash", "list", "set", "zset", "stream"}

// isOversized reports whether the first elements of a value of so many bytes and
// elements are more than may be read.
func isOversized(bytes, size int64) bool {
	if size > maxElements {
		bytes = bytes / size * maxElements
	}
	return bytes > maxElementBytes
}
