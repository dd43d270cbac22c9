package formats_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

const (
	client = "3ac1b6a2-93a5-4f0f-8f2e-0d6a4f1c2b33"
	other  = "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77"
)

func TestHostileKeysAndValuesSurviveVerbatim(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	const (
		key   = "lock:\x1b[2J\x1b]0;x\x07"
		value = "\x00\xff\x1b[31m\x9b\xe2\x80\xae\r\n~~~"
	)
	load(t, rdb, []string{"SET", key, value}, []string{"HSET", "lock:\xff\x00", "\x1b]52;c;\x07", "2"})
	snap := scan(t, rdb)
	check.Require(t, len(snap.Locks) == 2, "found %q", keys(snap))
	l, other := snap.Locks[0], snap.Locks[1]
	check.True(t, l.Key == key && l.Holders[0].ID == value && l.Kind == keyspace.Mutex, "found %+v", l)
	check.True(t, other.Key == "lock:\xff\x00" && other.Holders[0].ID == "\x1b]52;c;\x07" && other.Depth() == 2, "found %+v", other)
}

// hex32 has the length of an MD5 digest.
const hex32 = "9f86d081884c7d659a2feaa0c55ad015"

// keyKind is a kind of keys, with the commands that create some, and what they are.
type keyKind struct {
	name     string
	commands [][]string
	answers  []string
}

// keyKinds reads a file of testdata: each line that begins with a colon names a kind, and the commands that create its
// keys follow, and perhaps answers behind equal signs.
func keyKinds(t *testing.T, file string) (kinds []keyKind) {
	t.Helper()
	content := check.Must(os.ReadFile("testdata/" + file))(t)
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		name, isName := strings.CutPrefix(line, ": ")
		answer, isAnswer := strings.CutPrefix(line, "= ")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case isName:
			kinds = append(kinds, keyKind{name: name})
		case isAnswer:
			last := &kinds[len(kinds)-1]
			last.answers = append(last.answers, answer)
		default:
			last := &kinds[len(kinds)-1]
			last.commands = append(last.commands, argv(t, line))
		}
	}
	return kinds
}

// argv splits a line as redis-cli does.
func argv(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	for line != "" {
		word, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, `"`) {
			quoted, err := strconv.QuotedPrefix(line)
			check.NoError(t, err, "%s", line)
			word, err = strconv.Unquote(quoted)
			check.Require(t, err == nil, "%s: %v", line, err)
			rest = strings.TrimPrefix(line[len(quoted):], " ")
		}
		words, line = append(words, word), rest
	}
	return words
}

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
