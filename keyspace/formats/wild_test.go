package formats_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// Each file of testdata/wild is a case from public code or from a user's report: the state of a server, and what locktop
// must find in it. CONTRIBUTING.md says how to add one. The keys of sessions, caches, queues and rate limiters are no locks.
func TestLocksAsTheyAreInTheWild(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.EmbeddedForTest(t).Addr())
	for _, path := range append(check.Must(filepath.Glob("testdata/wild/*"))(t), "testdata/ordinary") {
		for _, k := range keyKinds(t, path[len("testdata/"):]) {
			t.Run(filepath.Base(path)+"/"+k.name, func(t *testing.T) {
				load(t, rdb, []string{"FLUSHALL"})
				for _, argv := range formats.At(keyspace.Sample{Commands: k.commands}, clock(t, rdb)).Commands {
					if argv[0] == "SUBSCRIBE" {
						s := servertest.Subscribe(t.Context(), rdb, argv[1])
						defer s.Close()
						check.Must(s.Receive(t.Context()))(t)
					} else {
						load(t, rdb, argv)
					}
				}
				checkAnswers(t, scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible}), k.answers)
			})
		}
	}
}

// checkAnswers compares the locks of a snapshot with answers: a key, the least confidence, and some of the fields below.
// A lock without an answer is at most a possible one.
func checkAnswers(t *testing.T, s keyspace.Snapshot, answers []string) {
	t.Helper()
	locks, findings := found(s), make(map[string][]string)
	for _, f := range keyspace.Findings(s) {
		findings[f.Lock.Key] = append(findings[f.Lock.Key], f.ID)
	}
	for _, text := range answers {
		want := make(map[string]any)
		check.NoError(t, json.Unmarshal([]byte(text), &want), "%s", text)
		key, least := fmt.Sprint(want["key"]), keyspace.No
		check.NoError(t, least.UnmarshalText(fmt.Append(nil, want["confidence"])), "%s", text)
		l, names := locks[key], []string{}
		check.True(t, l.Confidence >= least, "%s is %s to be a %s, want %s", key, l.Confidence, l.Format, least)
		for _, h := range l.Holders {
			names = append(names, h.Name())
		}
		got := map[string]any{
			"key": key, "confidence": want["confidence"], "format": l.Format, "kind": l.Kind, "state": l.State(s.At), "holders": names,
			"waiters": l.WaiterCount(), "fence": l.Fence, "findings": findings[key], "ttl": l.Expires.Sub(s.At).Round(time.Minute),
		}
		for field, value := range want {
			check.Equal(t, fmt.Sprint(got[field]), fmt.Sprint(value), "%s: %s", key, field)
		}
		if least > keyspace.No {
			delete(locks, key)
		}
	}
	for key, l := range locks {
		check.True(t, l.Confidence < keyspace.Likely, "%s is %s to be a %s: %q", key, l.Confidence, l.Format, l.Evidence)
	}
}
