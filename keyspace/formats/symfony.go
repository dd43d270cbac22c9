package formats

import (
	"time"

	"locktop/keyspace"
)

// symfony is the format of PHP's symfony/lock: a zset of holders with their deadlines,
// and another member if the holder is a writer.
func symfony() keyspace.Format {
	return keyspace.Format{
		Name:      "symfony",
		Library:   "symfony/lock",
		Source:    "github.com/symfony/lock: Store/RedisStore.php",
		Signature: "the zset holds base64 of 32 bytes, each with the time when it ends",
		Type:      "zset",
		Probe:     probeIf(keyspace.Certain, func(first string) bool { return first == symfonyWrite || thirtyTwoBytes(first) }),
		Decode:    decodeSymfony,
		Actions:   symfonyActions(),
		Samples:   symfonySamples(),
	}
}

func symfonyActions() *keyspace.Actions {
	a := memberActions(inZset, "scores_extend")
	a.Args = func(l keyspace.Lock) []string {
		if l.Holders[0].Mode == keyspace.Write {
			return seenHolders(inZset, l, symfonyWrite)
		}
		return seenHolders(inZset, l)
	}
	a.ForceRelease = script("members_check", "symfony_release")
	return a
}

const symfonyWrite = "__write__"

// thirtyTwoBytes reports whether s is base64 of 32 bytes.
func thirtyTwoBytes(s string) bool {
	return len(s) == 44 && s[43] == '=' && only(s[:43], "+/")
}

func decodeSymfony(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.RW}
	mode := keyspace.Read
	for _, m := range e.Members {
		until, timed := atScore(m.Score)
		switch {
		case !timed:
			return keyspace.Lock{}, keyspace.No
		case !until.After(e.Now): // expired, but not removed
			if m.Name != symfonyWrite && !thirtyTwoBytes(m.Name) {
				return keyspace.Lock{}, keyspace.No
			}
		case m.Name == symfonyWrite:
			mode = keyspace.Write
		case thirtyTwoBytes(m.Name):
			l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Count: 1, Expires: until})
		default:
			return keyspace.Lock{}, keyspace.No
		}
	}
	for i := range l.Holders {
		l.Holders[i].Mode = mode
	}
	return ifHeld(l, keyspace.Certain)
}

const (
	symfonyToken1 = "q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8l9Z0x1C="
	symfonyToken2 = "Zx9+Yv8/Wu7Tt6Ss5Rr4Qq3Pp2Oo1Nn0Mm9Ll8Kk7Jj="
)

func symfonySamples() []keyspace.Sample {
	return []keyspace.Sample{
		{
			Name: "a writer",
			Commands: [][]string{
				{"ZADD", "invoice:2026-118", "{ms+300000}", symfonyToken1, "{ms+300000}", symfonyWrite},
				{"PEXPIREAT", "invoice:2026-118", "{ms+300000}"},
			},
			Want: keyspace.Lock{
				Key: "invoice:2026-118", Kind: keyspace.RW, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: symfonyToken1, Count: 1, Mode: keyspace.Write}},
			},
			TTL: 300 * time.Second,
		},
		{
			Name: "a reader, and one that is gone",
			Commands: [][]string{
				{"ZADD", "invoice:2026-119", "{ms+60000}", symfonyToken1, "{ms-500}", symfonyToken2},
				{"PEXPIREAT", "invoice:2026-119", "{ms+60000}"},
			},
			Want: keyspace.Lock{
				Key: "invoice:2026-119", Kind: keyspace.RW, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: symfonyToken1, Count: 1, Mode: keyspace.Read}},
			},
			TTL: 60 * time.Second,
		},
	}
}
