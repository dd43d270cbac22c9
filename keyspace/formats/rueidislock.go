package formats

import (
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// rueidis returns the common format: the same 24 raw bytes in several keys on one server
// or cluster. The holder has the majority of the keys. The first existing key represents
// the lock.
func rueidis(prefix majorityPrefix, name, library, source string) keyspace.Format {
	return keyspace.Format{
		About: about(name, library, source,
			"the name begins with "+string(prefix)+" and a number, and the value is 24 raw bytes"),
		Attempts: stringAttempts(),
		Type:     "string",
		Prefixes: []string{string(prefix)},
		Match: func(key string) bool {
			_, _, ok := prefix.name(key)
			return ok
		},
		Probe:   probeIf(keyspace.Certain, func(first string) bool { return isRaw(first, 24) }),
		Related: besideAll("string", prefix.others),
		Decode:  prefix.decode,
		Actions: prefix.actions(),
		Samples: prefix.samples(),
	}
}

const rueidisKeys = 5 // for a majority of up to three; the default is two of three

// majorityPrefix is the prefix of all keys of these locks.
type majorityPrefix string

func (p majorityPrefix) key(i int, name string) string {
	return string(p) + strconv.Itoa(i) + ":" + name
}

// name returns the number in a key and the name of the lock.
func (p majorityPrefix) name(key string) (i int, name string, ok bool) {
	rest, ours := strings.CutPrefix(key, string(p))
	number, name, named := strings.Cut(rest, ":")
	if !ours || !named || name == "" || !digits(number, 1, 1) {
		return 0, "", false
	}
	return int(number[0] - '0'), name, true
}

// others returns the other keys of the lock of a key.
func (p majorityPrefix) others(key string) (keys []string) {
	own, name, _ := p.name(key)
	for i := range rueidisKeys {
		if i != own {
			keys = append(keys, p.key(i, name))
		}
	}
	return keys
}

func (p majorityPrefix) decode(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	own, name, ok := p.name(e.Key)
	if !ok || !isRaw(e.Value, 24) {
		return keyspace.Lock{}, keyspace.No
	}
	votes := map[string]int{e.Value: 1}
	holder, keys := e.Value, 1
	for i := range rueidisKeys {
		other, there := e.Related[p.key(i, name)]
		switch {
		case !there || i == own:
			continue
		case i < own:
			return keyspace.Lock{}, keyspace.No // the other key represents the lock
		}
		keys++
		votes[other.Value]++
		if votes[other.Value] > votes[holder] {
			holder = other.Value
		}
	}
	l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: holder, Depth: 1}}}
	if keys > 1 {
		l.Evidence = []string{strconv.Itoa(votes[holder]) + " of its " + strconv.Itoa(keys) + " keys have the same value"}
	}
	return l, keyspace.Certain
}

func (p majorityPrefix) samples() []keyspace.Sample {
	const token = "\x8f\x01\xd2rueidis\x00\x91lock\xfe24bytes"
	s := opaqueSample("held by all of its three keys", p.key(0, "rates:refresh"), token, keyspace.Certain, 20*time.Second)
	for i := 1; i < 3; i++ {
		s.Commands = append(s.Commands, []string{"SET", p.key(i, "rates:refresh"), token, "PX", "20000"})
	}
	s.Want.Evidence = []string{"3 of its 3 keys have the same value"}
	return []keyspace.Sample{s}
}

func (p majorityPrefix) actions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return append([]string{l.Key}, p.others(l.Key)...)
		},
		Args:         func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} },
		ForceRelease: script("rueidislock_release"),
		Extend:       script("rueidislock_extend"),
		WakeHint:     "are notified by client tracking, like the holder",
	}
}
