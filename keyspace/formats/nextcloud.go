package formats

import (
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// nextcloud is the format of file locks in Nextcloud: the number of shared holders, or
// a value for an exclusive holder.
func nextcloud() keyspace.Format {
	r := stringLock{token: nextcloudToken, sure: needsTTL(keyspace.Certain)}
	s := opaqueSample("shared by three", "nextcloud/files/"+sampleHex1, "3", keyspace.Certain, time.Hour)
	s.Want.Kind, s.Want.Holders[0].Mode, s.Want.Holders[0].Label = keyspace.RW, keyspace.Read, "3 shared holders"
	x := opaqueSample("held exclusively", "nextcloud/files/"+sampleHex2, `"exclusive"`, keyspace.Certain, time.Hour)
	x.Want.Kind, x.Want.Holders[0].Mode = keyspace.RW, keyspace.Write
	return r.format(keyspace.Format{
		Name:      "nextcloud",
		Library:   "Nextcloud",
		Source:    "github.com/nextcloud/server: lib/private/Lock/MemcacheLockingProvider.php",
		Signature: "the name ends in /files/ and a digest, and the value is a number of holders or exclusive",
		Match: func(key string) bool {
			at := len(key) - 32
			return at >= 0 && isHex(key[at:], 32) && strings.HasSuffix(key[:at], "/files/")
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			l.Kind = keyspace.RW
			return l, sure
		},
		Samples: []keyspace.Sample{s, x},
	})
}

func nextcloudToken(value string, _ time.Time) (keyspace.Holder, bool) {
	h := keyspace.Holder{ID: value, Count: 1, Mode: keyspace.Write}
	if strings.Trim(value, `"`) == "exclusive" {
		return h, true
	}
	n, ok := count(value)
	h.Mode, h.Label = keyspace.Read, strconv.Itoa(n)+" shared holders"
	return h, ok && n < 100_000
}
