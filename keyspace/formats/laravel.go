package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// laravel is the format of PHP's Laravel: 16 letters and digits, or 20 for a slot of a
// funnel, or an owner of the caller's choice. Other values in the cache are serialised
// or numbers.
func laravel() keyspace.Format {
	r := stringLock{sure: laravelSure, token: opaqueToken(func(v string) bool {
		return laravelToken(v) || v != "" && len(v) <= 64 && only(v, "-_.:@") && !digits(v, 1, 64) && !serialised(v)
	})}
	return r.format(keyspace.Format{
		Name:      "laravel",
		Library:   "Laravel",
		Source:    "github.com/laravel/framework: src/Illuminate/Cache/RedisLock.php",
		Signature: "the name is in Laravel's cache, and the value has not the form of a cached value",
		Match: func(key string) bool {
			near := strings.Contains(key, "laravel") || strings.Contains(key, "-cache-") || strings.Contains(key, "framework/")
			return near && laravelSure(key, true) > keyspace.No
		},
		Probe: func(key, first string) keyspace.Confidence {
			if laravelToken(first) {
				return keyspace.Certain
			}
			return oneLess(r.probe(key, first))
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if !laravelToken(e.Value) {
				sure = oneLess(sure)
			}
			return l, sure
		},
		Samples: []keyspace.Sample{
			opaqueSample("a lock of the cache", "laravel_database_laravel_cache_:export:ledger", "x9KfQ2mB7tZrW4Lp", keyspace.Certain, time.Minute),
			opaqueSample("a lock whose owner has a name", "laravel_database_laravel_cache_:seat:14", "user-7", keyspace.Likely, time.Minute),
			opaqueSample("a unique job, without a TTL", `laravel_database_laravel_cache_:laravel_unique_job:App\Jobs\Sync:7`, "Tq7Lm3Xc9Vb1Nz5K", keyspace.Certain, 0),
		},
	})
}

// laravelSure returns the confidence for a key with a token of Laravel.
func laravelSure(key string, _ bool) keyspace.Confidence {
	for _, mark := range [...]string{"laravel_cache_", "-cache-", "laravel_unique_job:", "laravel-queue-overlap:", "framework/schedule-", "framework/command-"} {
		if strings.Contains(key, mark) && (mark != "-cache-" || strings.Contains(key, "-database-")) {
			return keyspace.Certain
		}
	}
	if strings.Contains(key, "laravel_database_") {
		return randomToken(key)
	}
	return keyspace.No
}

func laravelToken(s string) bool { return (len(s) == 16 || len(s) == 20) && only(s, "") && mixed(s) }

// serialised reports whether s begins like a value that PHP has serialised.
func serialised(s string) bool {
	return len(s) > 1 && strings.IndexByte("abdiOsNC", s[0]) >= 0 && (s[1] == ':' || s[1] == ';')
}

// mixed reports whether s has capital and small letters, like almost all random
// strings.
func mixed(s string) bool { return s != strings.ToLower(s) && s != strings.ToUpper(s) }
