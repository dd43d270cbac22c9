package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/incident"
	"locktop/keyspace/metrics"
)

// alwaysKnown are the keys of JSON whose 0 or false is a fact, whatever could be read. A key that may be
// unknown does not belong here: it is absent then.
var alwaysKnown = strings.Fields(`complete up db scanned_count command_count wait_ms ttl_ms length unreachable
	lock_count count held_share waited_ms longest_wait_ms client_count classes_omitted blocked_by_omitted story_count ongoing
	shows_waiters can_release can_extend duration_ms`)

// oneOfEach makes one element in each list of a document, and nothing else.
func oneOfEach(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		oneOfEach(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			oneOfEach(v.Field(i))
		}
	}
}

// zeros lists the keys of a document that are 0 or false.
func zeros(value any, key string) (all []string) {
	switch is := value.(type) {
	case map[string]any:
		for key, one := range is {
			all = append(all, zeros(one, key)...)
		}
	case []any:
		for _, one := range is {
			all = append(all, zeros(one, key)...)
		}
	case float64, bool:
		if is == 0.0 || is == false {
			all = append(all, key)
		}
	}
	return all
}

// A document of which nothing is known has no number and no false.
func TestAKeyOfSomethingUnknownIsAbsent(t *testing.T) {
	for section, document := range jsonDocuments {
		empty := reflect.New(reflect.TypeOf(document).Elem())
		oneOfEach(empty.Elem())
		for _, key := range zeros(decoded[map[string]any](t, string(check.Must(json.Marshal(empty.Interface()))(t))), "") {
			check.True(t, slices.Contains(alwaysKnown, key), "%s: %s is 0 or false if nothing is known", section, key)
		}
	}
}

// unknown is a snapshot in which as much as possible is unknown, with a lock that is held.
func unknown() (snap keyspace.Snapshot, l keyspace.Lock) {
	now := time.Date(2026, 11, 20, 12, 31, 17, 125e6, time.UTC)
	l = keyspace.Lock{
		Key: "orders", Node: "a:1", DB: 3, Kind: keyspace.Mutex, Format: "set-nx", Confidence: keyspace.Likely,
		Holders: []keyspace.Holder{{ID: "token", Depth: 1, Expires: now.Add(45 * time.Second)}}, Expires: now.Add(45 * time.Second),
	}
	return keyspace.Snapshot{At: now, Locks: []*keyspace.Lock{&l}, Nodes: []keyspace.Node{{Up: true, Server: keyspace.Server{Addr: "a:1"}, Locks: 1, AskBlind: "a proxy"}, {Server: keyspace.Server{Addr: "b:1"}, Error: "refused"}}}, l
}

// unknownOutputs are what the commands print of it, by their name and format.
func unknownOutputs() map[string]func(io.Writer) error {
	snap, l := unknown()
	view, h, c := render.NewView(snap, false), l.Holders[0], connect.Flags{}
	c.FlagSet()
	to, _ := c.Resolve() // flags that are not set are valid
	list := func(o listOptions) func(io.Writer) error {
		return func(w io.Writer) error { return output{out: w}.print(view, o) }
	}
	document := func(d any) func(io.Writer) error { return func(w io.Writer) error { return render.JSON(w, d) } }
	seen, diagnosis := inspection{View: view}, diagnosisOf("", view, snap)
	id := identity{lock: l, holder: h, at: snap.At, head: render.HeadOf(snap), known: byHint, why: "the value", clients: []keyspace.Client{{Addr: "a:7"}}}
	waits := contention.Report{Watched: contention.Span{From: snap.At, Until: snap.At.Add(time.Minute)}, Classes: []contention.Class{{DB: 3, Name: "orders", Locks: 1, Held: 0.5}}}
	stories := render.Stories{From: snap.At, To: snap.At, Found: 1, Stories: []incident.Story{{Lock: l.ID(), From: snap.At, To: snap.At, Lines: []incident.Line{{At: snap.At}}}}}
	return map[string]func(io.Writer) error{
		"list": list(listOptions{}), "list --csv": list(listOptions{csv: true}), "list --plain": list(listOptions{plain: true}), "list --json": list(listOptions{json: true}),
		"inspect": func(w io.Writer) error { return writeInspection(w, to, seen, l) }, "inspect --json": document(inspectionOf(to, seen, l)),
		"doctor": func(w io.Writer) error { return diagnosis.write(w, false) }, "doctor --json": document(diagnosis.json()),
		"who": func(w io.Writer) error { return writeIdentity(w, id) }, "who --json": document(identityOf(id)),
		"contention":        func(w io.Writer) error { return render.Contention(w, waits, false, 9, 0) },
		"contention --json": document(render.ContentionOf(waits, snap, 9)),
		"explain":           func(w io.Writer) error { return stories.Text(w, 0) }, "explain --json": document(stories.Document()), "explain --markdown": stories.Markdown, "explain --html": stories.HTML,
		"release --json": document(jsonRelease{Head: render.HeadOf(snap), Locks: []jsonReleased{{Holders: []render.Holder{}}}}),
		"watch": func(w io.Writer) (err error) {
			for _, kind := range keyspace.EventKinds() {
				e := keyspace.Event{At: snap.At, Kind: kind, Lock: l, Holder: h}
				err = errors.Join(err, render.Written(w, render.EventSentence(e, nil, false)+"\n"), render.JSON(w, render.EventOf(e)))
			}
			return err
		},
		"export": func(w io.Writer) error {
			e := metrics.New(metrics.Options{Locks: []string{"none"}, Classes: true, Shows: render.ShowsWaiters}, metrics.Target{Name: "a"})
			e.Observe(0, metrics.Reading{Snapshot: snap})
			return e.Write(w)
		},
	}
}

// notAbout are the commands that print nothing that they have read of locks.
var notAbout = strings.Fields("demo record replay formats config load agent scenarios version monitor-child")

// knownZeros are what is rightly 0 or false, or says no more than what is known: what locktop itself has done or counted
// so far, the texts of commands, pages and helps, and what is said of the part that was read.
var knownZeros = regexp.MustCompile(`^locktop_(pass_complete|down_reason|(commands|blocked_seconds|events|events_dropped)(_total)?|server_busy_seconds_total|hold_seconds_\w+|classes_dropped|locks)\b.*|` +
	`^# .*|.*<style>.*|^.*\{.*; \}$|'.*'|"(` + strings.Join(alwaysKnown, "|") + `)":|as yes or no|nothing is wrong with those that were read; others may be missing`)

// No command makes a number, a "no" or a check mark of what is unknown.
func TestNoCommandMakesANumberOfWhatIsUnknown(t *testing.T) {
	all, claims := unknownOutputs(), regexp.MustCompile(`(?i)(?:^|[ ,:"({])(?:0(?:\.0+)?(?: s| ms|%)?|no|none|false|nothing|never|nobody|-1)(?:$|[ ,"})\]])|✓`)
	for _, command := range new(program).rootCommand().Commands() {
		_, prints := all[command.Name()]
		_, json := all[command.Name()+" --json"]
		check.True(t, prints || json || slices.Contains(notAbout, command.Name()), "%s: what does it print of what is unknown?", command.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var out bytes.Buffer
		check.NoError(t, all[name](&out))
		for line := range strings.Lines(out.String()) {
			said := claims.FindString(knownZeros.ReplaceAllString(strings.TrimSuffix(line, "\n"), "="))
			check.True(t, said == "", "%s says %q of what is unknown: %s", name, said, line)
		}
	}
}

// The difference of two clocks is not known better than the time of a round trip.
func TestTheDifferenceOfClocksIsNoMoreThanIsMeasured(t *testing.T) {
	for _, c := range []struct {
		ahead, roundTrip time.Duration
		says             string
	}{
		{-51 * time.Millisecond, 102 * time.Millisecond, "agrees with ours within 102 ms"}, {-4500 * time.Millisecond, 102 * time.Millisecond, "is 4.5 s behind ours"},
		{3 * time.Second, time.Millisecond, "is 3.0 s ahead of ours"}, {100 * time.Microsecond, 72 * time.Microsecond, "agrees with ours"},
	} {
		check.Equal(t, skew(c.ahead, c.roundTrip), c.says)
	}
}
