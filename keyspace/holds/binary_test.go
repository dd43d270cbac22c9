package holds

import (
	"reflect"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// The binary form has all fields of a part but those that Cut leaves out, and no prefix of it is read as parts.
func TestTheBinaryFormHasAllFields(t *testing.T) {
	h, w, n := &Hold{}, Wait{}, 0
	check.Fill(reflect.ValueOf(h).Elem(), &n)
	check.Fill(reflect.ValueOf(&w).Elem(), &n)
	h.Holder.Since, h.Seen, h.Depth = time.Time{}, time.Time{}, nil
	was := Parts{
		{Lock: keyspace.ID{Node: "10.0.0.5:6379", DB: 3, Key: "a"}, Format: "redsync", Holds: []*Hold{h, h, {}}, Waits: []Wait{w}},
		{Lock: keyspace.ID{Key: "b"}, Format: "redsync"},
	}
	data := check.Must(was.MarshalBinary())(t)
	var now Parts
	check.NoError(t, now.UnmarshalBinary(data))
	check.True(t, reflect.DeepEqual(was, now), "%+v became %+v", was, now)
	for i := range data {
		check.True(t, now.UnmarshalBinary(data[:i]) != nil, "%d of %d bytes are read as parts", i, len(data))
	}
}
