package formats

import (
	"fmt"
	"strconv"
	"time"

	"locktop/keyspace"
)

// magento is the format of session locks in Magento's Cm_RedisSession. Fields of the
// session's hash count the attempts and the waiters, and identify the holder. The TTL
// is that of the session.
func magento() keyspace.Format {
	return keyspace.Format{
		Name:         "magento",
		ShowsWaiters: true,
		Library:      "Cm_RedisSession (Magento)",
		Source:       "github.com/colinmollenhour/php-redis-session-abstract: src/Cm/RedisSession/Handler.php",
		Signature:    "the hash is a session with the fields lock and pid",
		Type:         "hash",
		Probe:        probeIf(keyspace.Certain, magentoField),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			fields := make(map[string]string, len(e.Members))
			for _, m := range e.Members {
				if !magentoField(m.Name) {
					return keyspace.Lock{}, keyspace.No
				}
				fields[m.Name] = m.Value
			}
			attempts, locked := count(fields["lock"])
			h, ok := hostAndProcess("|")(fields["pid"], e.Now)
			if !locked || !ok {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{h}}
			if attempts > 1 {
				l.Evidence = []string{fmt.Sprintf("%d attempts to lock were counted", attempts)}
			}
			if n, err := strconv.ParseInt(fields["wait"], 10, 32); err == nil && n > 0 {
				l.Waiting = int(n)
			}
			return l, keyspace.Certain
		},
		Actions: &keyspace.Actions{
			Keys:         lockKey,
			Args:         func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} },
			ForceRelease: script("magento_release"),
		},
		Samples: []keyspace.Sample{{
			Name: "a request that runs, and two that wait",
			Commands: [][]string{
				{"HSET", "sess_8f14e45fceea167a", "lock", "3", "pid", "shop-01|3121", "wait", "2", "data", ":1:", "req", "3", "writes", "9"},
				{"PEXPIRE", "sess_8f14e45fceea167a", "3600000"},
			},
			Want: keyspace.Lock{
				Key: "sess_8f14e45fceea167a", Kind: keyspace.Mutex, Confidence: keyspace.Certain, Waiting: 2,
				Holders:  []keyspace.Holder{{ID: "shop-01|3121", Count: 1}},
				Evidence: []string{"3 attempts to lock were counted"},
			},
			TTL: time.Hour,
		}},
	}
}

func magentoField(name string) bool {
	switch name {
	case "lock", "pid", "wait", "data", "req", "writes":
		return true
	}
	return false
}
