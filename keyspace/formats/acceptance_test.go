package formats_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
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
