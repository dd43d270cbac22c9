package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/lock"
	"locktop/tui/widget"
)

// Each lock is listed once, with the right format, and no companion key is listed.
func TestTheLocksOfAllLibrariesAtOnce(t *testing.T) {
	long(t, "it follows the locks of all libraries for seconds")
	for name, addr := range map[string]string{
		"embedded": servertest.EmbeddedForTest(t).Addr(),
		"real":     servertest.RedisForTest(t).Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			rdb := clientTo(t, addr)
			states := append(loadStates(t, rdb, "testdata/states/libraries"), loadSamples(t, rdb)...)
			var short []string // the locks that end within 5 s
			for _, key := range rdb.Keys(t.Context(), "*").Val() {
				if left := rdb.PTTL(t.Context(), key).Val(); left > 0 && left <= 5*time.Second {
					short = append(short, key)
				}
			}
			found := listed(t, addr)
			for _, s := range states {
				for _, want := range s.locks {
					if found[want.key] == nil && slices.Contains(short, want.key) && rdb.Exists(t.Context(), want.key).Val() == 0 {
						continue // on a busy machine it has ended before it was listed
					}
					want.check(t, s.name, found)
					delete(found, want.key)
				}
			}
			for key, l := range found {
				t.Errorf("%s is listed, as %v", key, at(l, "format"))
			}
			all := listed(t, addr, "--all")
			for _, s := range states {
				for _, want := range s.possible {
					want.check(t, s.name, all)
				}
			}
		})
	}
}

// listed runs list --json and returns the locks by key. No key may appear twice. It does not pause
// for the server, because some locks expire soon.
func listed(t *testing.T, addr string, flags ...string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(run(t, append([]string{"list", "--json", "--budget", "full", "-u", "redis://" + addr}, flags...)...)))
	d.UseNumber()
	var doc any
	check.NoError(t, d.Decode(&doc))
	locks := map[string]any{}
	for _, l := range at(doc, "locks").([]any) {
		key := at(l, "key").(string)
		check.True(t, locks[key] == nil, "%s is listed twice", key)
		locks[key] = l
	}
	return locks
}

// state is what a library stores, and the lock that must be decoded.
type state struct {
	name            string
	locks, possible []expectation
}

type expectation struct {
	key    string
	fields []string
}

func (e expectation) check(t *testing.T, state string, listed map[string]any) {
	t.Helper()
	l := listed[e.key]
	if l == nil {
		t.Errorf("%s: %s is not listed", state, e.key)
		return
	}
	for _, f := range e.fields {
		path, want, _ := strings.Cut(f, "=")
		got := fmt.Sprint(at(l, path))
		check.True(t, got == want, "%s: %s of %s is %s, want %s", state, path, e.key, got, want)
	}
}

// loadStates executes a file of states.
func loadStates(t *testing.T, rdb server.Client, file string) []state {
	t.Helper()
	now := check.Must(rdb.Time(t.Context()).Result())(t)
	var all []state
	commands := rdb.Pipeline()
	for line := range strings.Lines(readText(t, file)) {
		words := split(t, strings.TrimSpace(line))
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] == "state" {
			all = append(all, state{name: words[1]})
			continue
		}
		s := &all[len(all)-1]
		switch words[0] {
		case "lock":
			s.locks = append(s.locks, expectation{words[1], words[2:]})
		case "possible":
			s.possible = append(s.possible, expectation{words[1], words[2:]})
		case "@sub":
			listen(t, rdb, words[1])
		default:
			filled := formats.At(keyspace.Sample{Commands: [][]string{words}}, now)
			commands.Do(t.Context(), anys(filled.Commands[0])...)
		}
	}
	issueAll(t, commands)
	return all
}

// loadSamples loads the samples of all formats.
func loadSamples(t *testing.T, rdb server.Client) []state {
	t.Helper()
	now := check.Must(rdb.Time(t.Context()).Result())(t)
	var all []state
	commands := rdb.Pipeline()
	for _, f := range formats.All() {
		for _, sample := range formats.Samples(f.Name) {
			for _, argv := range formats.At(sample, now).Commands {
				commands.Do(t.Context(), anys(argv)...)
			}
			want := sample.Want
			e := expectation{want.Key, []string{
				"format=" + f.Name, "confidence=" + want.Confidence.String(), "kind=" + string(want.Kind),
				fmt.Sprintf("holders.len=%d", len(want.Holders)),
			}}
			if f.ShowsWaiters {
				e.fields = append(e.fields, fmt.Sprintf("waiter_count=%d", want.WaiterCount()))
			}
			s := state{name: f.Name + ": " + sample.Name}
			if want.Confidence == keyspace.Possible {
				s.possible = []expectation{e}
			} else {
				s.locks = []expectation{e}
			}
			all = append(all, s)
		}
	}
	issueAll(t, commands)
	return all
}

// listen subscribes to a channel until the end of the test.
func listen(t *testing.T, rdb server.Client, channel string) {
	t.Helper()
	sub := servertest.Subscribe(t.Context(), rdb, channel)
	t.Cleanup(func() { sub.Close() })
	check.Must(sub.Receive(t.Context()))(t)
}

func issue(t *testing.T, rdb server.Client, words []string) {
	t.Helper()
	err := rdb.Do(context.Background(), anys(words)...).Err()
	check.Require(t, err == nil || err == redis.Nil, "%q: %v", words, err)
}

// issueAll sends the commands together: the TTL of some is a few seconds.
func issueAll(t *testing.T, commands redis.Pipeliner) {
	t.Helper()
	sent, _ := commands.Exec(t.Context()) // each command has its own error
	for _, cmd := range sent {
		err := cmd.Err()
		check.Require(t, err == nil || err == redis.Nil, "%v", err)
	}
}

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}

// split splits a line as redis-cli does.
func split(t *testing.T, line string) (words []string) {
	t.Helper()
	for _, word := range compiled(`"(?:[^"\\]|\\.)*"|\S+`).FindAllString(line, -1) {
		if word[0] == '"' {
			word = check.Must(strconv.Unquote(word))(t)
		}
		words = append(words, word)
	}
	return words
}

func TestTheInspectorReadsWhatTheLocksWrite(t *testing.T) {
	t.Parallel()
	rdb := clientTo(t, servertest.RedisForTest(t).Addr())
	client := newLockClient(t, rdb, "billing-7")
	o := lock.Options{TTL: time.Minute, Fence: true}
	reentrant := check.Must(client.Reentrant("twice", o))(t)
	take(t, check.Must(client.Mutex("once", o))(t))
	take(t, check.Must(client.Fair("{queue}:fair", o))(t))
	take(t, reentrant)
	take(t, reentrant)
	waits, stop := context.WithCancel(t.Context())
	defer stop()
	go check.Must(client.As("fair-2").Fair("{queue}:fair", o))(t).Lock(waits)
	for rdb.Exists(waits, "{queue}:fair::waiters").Val() == 0 {
		time.Sleep(time.Millisecond)
	}

	snap := check.Must(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()}).Scan(t.Context()))(t)
	found := make(map[string]keyspace.Lock)
	for _, l := range snap.Locks {
		found[l.Key] = *l
	}
	queue := found["{queue}:fair"]
	check.True(t, queue.Kind == keyspace.Fair && len(queue.Waiters) == 1 && strings.HasPrefix(queue.Waiters[0].ID, "fair-2~"), "the fair lock is read as %+v", queue)
	for key, count := range map[string]int{"once": 1, "{queue}:fair": 1, "twice": 2} {
		l := found[key]
		if l.Confidence != keyspace.Certain || l.Depth() != count || l.Fence != 1 || len(l.Holders) != 1 || l.Holders[0].Label != "billing-7" {
			t.Errorf("%s is read as %+v", key, l)
		}
		left, ok := l.TTL(snap.At)
		check.True(t, ok && left >= 55*time.Second && left <= time.Minute+time.Second, "%s has %v left, want a minute", key, left)
	}
	check.True(t, len(found) == 3, "%d locks found, want the three, and none of their companions", len(found))
}

func take(t *testing.T, l lock.Locker) {
	t.Helper()
	check.Must(l.Lock(t.Context()))(t)
}

func TestThePageOfFormatsIsUpToDate(t *testing.T) {
	want := run(t, "formats", "--markdown")
	page := readText(t, "../docs/formats.md")
	check.True(t, page == want, "docs/formats.md is stale; make it again: go run . formats --markdown > docs/formats.md")
}

func TestEveryFormatIsInTheTableAndInTheJSON(t *testing.T) {
	doc := decoded[struct{ Formats []jsonFormat }](t, run(t, "formats", "--json"))
	table := strings.Split(run(t, "formats"), "\n")[1:]
	for i, f := range formats.All() {
		j := doc.Formats[i]
		check.True(t, j.Name == f.Name && len(j.Samples) == len(formats.Samples(f.Name)) && len(j.Kinds) != 0 && j.Signature != "" && j.Confidence != "no",
			"%s is in the JSON as %+v", f.Name, j)
		check.True(t, strings.HasPrefix(table[i], f.Name+" ") && strings.Contains(table[i], f.Signature),
			"%s is in the table as %q", f.Name, table[i])
	}
	one := run(t, "formats", "bullmq")
	check.True(t, strings.Contains(one, "Source: github.com/taskforcesh/bullmq@v") && !strings.Contains(one, "asynq"), "bullmq alone: %s", one)
}

func TestTheTableOfFormatsFitsTheTerminal(t *testing.T) {
	var all []jsonFormat
	for _, f := range formats.All() {
		all = append(all, formatOf(f))
	}
	for width, want := range map[int]string{
		80:  "FORMAT TYPE KIND CONFIDENCE LIBRARY; in wider windows, in --json and --markdown: ACTIONS, SIGNATURE",
		100: "FORMAT TYPE KIND CONFIDENCE ACTIONS LIBRARY; in wider windows, in --json and --markdown: SIGNATURE",
		120: "FORMAT TYPE KIND CONFIDENCE ACTIONS LIBRARY SIGNATURE; ",
	} {
		var out bytes.Buffer
		check.NoError(t, writeFormatsTable(&out, all, width))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for _, line := range lines {
			w := widget.Width(line)
			check.True(t, w <= width, "%d cells in a terminal of %d: %s", w, width, line)
		}
		got := strings.Join(strings.Fields(lines[0]), " ") + "; "
		if len(lines) > 1+len(all) {
			got += lines[1+len(all)]
		}
		check.True(t, got == want, "in %d cells there are %s; want %s", width, got, want)
	}
}

func TestCommandsAreQuotedAsRedisCLITakesThem(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"SET", "a:{b}", "x/y+z==", "PX", "10"}, "SET a:{b} x/y+z== PX 10"},
		{[]string{"SET", "two words", ""}, `SET "two words" ""`},
		{[]string{"SET", "k", "\x00\xff\"\\\n"}, `SET k "\x00\xff\"\\\x0a"`},
	} {
		got := commandLine(c.argv)
		check.True(t, got == c.want, "%q is quoted as %s, want %s", c.argv, got, c.want)
	}
}

// run returns the output of a command.
func run(t *testing.T, args ...string) string {
	t.Helper()
	got := locktop(t, args...)
	check.Require(t, got.code == exitFine, "%+v", got)
	return got.out
}

func TestAnUnknownFormatIsAnsweredWithThoseThatAreLikeIt(t *testing.T) {
	for name, want := range map[string]string{
		"redison":  "there is redisson",
		"bulmq":    "there is bullmq",
		"arp":      "there is arq",
		"symfony":  "there is symfony, symfony-string",
		"lock":     "locktop formats lists them", // too many matches
		"nonsense": "locktop formats lists them",
		"":         "locktop formats lists them",
	} {
		got := nearest(name)
		check.True(t, got == want, "%q is answered with %q, want %q", name, got, want)
	}
}
