package formats

import (
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// redfour is the format of node's redfour and ioredfour: a hash with the number of the hold, from
// a counter of all locks of a namespace. The number is the token and the fence.
func redfour() keyspace.Format {
	return keyspace.Format{
		About: about("redfour", "ioredfour, redfour", "github.com/nodemailer/ioredfour@v1.4.1: lib/scripts.js; github.com/mixmaxhq/redfour@v2.2.2: src/index.js",
			"the hash has the field index and no other, and a counter of the namespace has counted as far"),
		Type:    "hash",
		Probe:   probeIf(keyspace.Certain, func(first string) bool { return first == "index" }),
		Related: besideAll("string", redfourCounters),
		Decode:  decodeRedfour,
		Actions: &keyspace.Actions{
			Keys:         func(l keyspace.Lock) []string { return append([]string{l.Key}, redfourCounters(l.Key)...) },
			Args:         func(l keyspace.Lock) []string { return []string{"", "", "index", l.Holders[0].ID} },
			ForceRelease: script("redfour_release"),
			Extend:       script("count_extend"),
			WakeHint:     "receive the key on {namespace}-release",
		},
		Samples: []keyspace.Sample{sample("the seventh hold of the namespace", 30*time.Second, keyspace.Lock{
			Key: "lock:mailbox:42", Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: "7", Depth: 1}}, Fence: 7,
		},
			"HSET lock:mailbox:42 index 7",
			"PEXPIRE lock:mailbox:42 30000",
			"SET lockindex 7")},
	}
}

// redfourCounters lists the possible counters of a lock: its namespace ends at one of the first
// colons. In a cluster it ends with braces, so that the counter is in the slot of the lock.
func redfourCounters(key string) (all []string) {
	namespace, rest, cluster := strings.Cut(key, ":{ior4_")
	if digest, _, ok := strings.Cut(rest, "}"); cluster && ok {
		return []string{namespace + ":{ior4_" + digest + "}:index"}
	}
	for at := range key {
		if key[at] == ':' && len(all) < 3 {
			all = append(all, key[:at]+"index")
		}
	}
	return all
}

func decodeRedfour(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
	if len(e.Members) != 1 || e.Members[0].Name != "index" || e.Expires.IsZero() || number(e.Members[0].Value) <= 0 {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Members[0].Value, Depth: 1}}, Fence: number(e.Members[0].Value)}
	for _, counter := range e.Related {
		if number(counter.Value) >= l.Fence {
			return l, keyspace.Certain
		}
	}
	return l, keyspace.Possible
}
