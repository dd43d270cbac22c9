package formats

import (
	"strconv"
	"time"

	"locktop/keyspace"
)

// setNX is SET key token NX PX, and SETNX, by whatever library or hand: a
// string with a token of some usual shape, or with anything at all if the name
// of the key says that it is a lock.
func setNX() keyspace.Format {
	return keyspace.Format{
		Name:    "set-nx",
		Library: "SET NX",
		Source:  "redis.io/commands/set, and the locks of many libraries",
		Type:    "string",
		Glance: func(key, first string) keyspace.Confidence {
			return tokenOf(first).confidence(key, true)
		},
		Decode:  decodeSetNX,
		Hands:   tokenHands(),
		Samples: setNXSamples(),
	}
}

func decodeSetNX(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	t := tokenOf(e.Value)
	sure := t.confidence(e.Key, !e.Expires.IsZero())
	if sure == keyspace.No {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{
		Kind:    keyspace.Unknown,
		Holders: []keyspace.Holder{{ID: e.Value, Label: t.label, Count: 1, Since: madeAt(t.id, e.Now)}},
	}
	if t.known {
		l.Kind = keyspace.Mutex
	}
	return l, sure
}

func setNXSamples() []keyspace.Sample {
	opaque := held("a value of somebody's own", "legacy:sync:lock", "nightly export, run 4711", "", 20*time.Second)
	opaque.Want.Kind = keyspace.Unknown
	return []keyspace.Sample{
		held("a UUID", "lock:users:88", "0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e", "", 10*time.Second),
		held("a UUID and a name", "mutex:thumbnail:17", "6f1c7a90-52be-4d0f-8f0a-9c2e4d6b8a10-resize-2", "resize-2", 10*time.Second),
		held("a UUID and a time", "transfer:acct-1881", "c2a4e6f8-1b3d-4f5a-8c7e-9d0b2a4c6e81.{ms-4000}", "", 25*time.Second),
		held("32 digits at random, as node-redlock makes them", "lock:shipment:5512", "9f86d081884c7d659a2feaa0c55ad015", "", 10*time.Second),
		held("16 letters, as Laravel and go-zero make them", "lock:export:ledger", "x9KfQ2mB7tZrW4Lp", "", 60*time.Second),
		held("a host and a process", "scheduler:leader", "web-01:4242", "", 120*time.Second),
		held("nothing but a mark", "lock:report:weekly", "1", "", 40*time.Second),
		held("a UUID that tells the time, for ever: redis-py without a timeout", "job:nightly", "{v1hex-11520000/5e}", "", 0),
		opaque,
	}
}

// held is a sample of one string; ttl 0 = for ever.
func held(name, key, token, label string, ttl time.Duration) keyspace.Sample {
	command := []string{"SET", key, token}
	if ttl > 0 {
		command = append(command, "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
	}
	return keyspace.Sample{
		Name:     name,
		Commands: [][]string{command},
		Want: keyspace.Lock{
			Key: key, Kind: keyspace.Mutex, Confidence: keyspace.Likely,
			Holders: []keyspace.Holder{{ID: token, Label: label, Count: 1}},
		},
		TTL: ttl,
	}
}
