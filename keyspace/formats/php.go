package formats

import (
	"fmt"
	"slices"
	"strconv"
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
		About: about("laravel", "Laravel", "github.com/laravel/framework@v13.26.1: src/Illuminate/Cache/RedisLock.php",
			"the name is in Laravel's cache, and the value has not the form of a cached value"),
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

// nextcloud is the format of file locks in Nextcloud and ownCloud: the number of shared holders, or
// a value for an exclusive holder.
func nextcloud() keyspace.Format {
	r := stringLock{token: nextcloudToken, sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		About: about("nextcloud", "Nextcloud, ownCloud", "github.com/nextcloud/server@0005a2442a: lib/private/Lock/MemcacheLockingProvider.php, lib/private/Memcache/Factory.php",
			"the name ends in /lockfiles/ and a digest, and the value is a number of holders or exclusive"),
		Match: hasDigest("/lockfiles/", 32),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			l.Kind = keyspace.RW
			return l, sure
		},
	})
}

func nextcloudToken(value string, _ time.Time) (keyspace.Holder, bool) {
	h := keyspace.Holder{ID: value, Depth: 1, Mode: keyspace.Write}
	if strings.Trim(value, `"`) == "exclusive" {
		return h, true
	}
	n, ok := count(value)
	h.Mode, h.Label = keyspace.Read, strconv.Itoa(n)+" shared holders"
	return h, ok && n < 100_000
}

// magento is the format of session locks in Magento's Cm_RedisSession. Fields of the
// session's hash count the attempts and the waiters, and identify the holder. The TTL
// is that of the session.
func magento() keyspace.Format {
	return keyspace.Format{
		About: about("magento", "Cm_RedisSession (Magento)", "github.com/colinmollenhour/php-redis-session-abstract@v2.1.2: src/Cm/RedisSession/Handler.php",
			"the hash is a session with the fields lock and pid"),
		ShowsWaiters: true,
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
	}
}

func magentoField(name string) bool {
	return slices.Contains([]string{"lock", "pid", "wait", "data", "req", "writes"}, name)
}

// symfony is the format of PHP's symfony/lock: a zset of holders with their deadlines,
// and another member if the holder is a writer.
func symfony() keyspace.Format {
	return keyspace.Format{
		About: about("symfony", "symfony/lock", "github.com/symfony/lock@v7.1.1: Store/RedisStore.php",
			"the zset holds base64 of 32 bytes, each with the time when it ends"),
		Attempts: attempts(byScript(1, 0, 2)),
		Type:     "zset",
		Probe:    probeIf(keyspace.Certain, func(first string) bool { return first == symfonyWrite || thirtyTwoBytes(first) }),
		Decode:   decodeSymfony,
		Actions:  symfonyActions(),
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
			l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Depth: 1, Expires: until})
		default:
			return keyspace.Lock{}, keyspace.No
		}
	}
	for i := range l.Holders {
		l.Holders[i].Mode = mode
	}
	return ifHeld(l, keyspace.Certain)
}
