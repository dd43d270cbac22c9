package inspect

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxElementBytes is the maximum memory of the elements to read of one value, which
// takes the server about a millisecond. Of larger values no element is read, because
// Redis returns elements only whole.
const maxElementBytes = 2 << 20

// checkSizes returns the keys with the oversized ones marked. Strings never are, and
// known sizes are not checked again. Without the permission for MEMORY USAGE nothing is
// marked.
//
// The size is exact for up to 256 elements. Of larger collections 256 elements are
// sampled, so a single huge element among thousands may be missed.
func (r *reader) checkSizes(ctx context.Context, refs []keyRef) ([]keyRef, error) {
	refs = slices.Clone(refs)
	for some := range slices.Chunk(sizeUnknown(refs), batchSize) {
		weights := make([]*redis.IntCmd, len(some))
		sizes := make([]*redis.IntCmd, len(some))
		err := r.conn.pipelined(ctx, "weigh keys", func(p redis.Pipeliner) {
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

// sizeUnknown returns the keys whose size matters and is unknown.
func sizeUnknown(refs []keyRef) []*keyRef {
	var all []*keyRef
	for i := range refs {
		if k := &refs[i]; !k.sizeKnown && slices.Contains(collections[:], k.typ) {
			all = append(all, k)
		}
	}
	return all
}

// collections are the types with elements.
var collections = [...]string{"hash", "list", "set", "zset", "stream"}

// isOversized reports whether the first elements of a value are too large to read.
func isOversized(bytes, size int64) bool {
	if size > maxElements {
		bytes = bytes / size * maxElements
	}
	return bytes > maxElementBytes
}
