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
	"sync"
	"testing"
	"time"

	"locktop/cli/connect"
	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/holds"
	"locktop/keyspace/incident"
	"locktop/keyspace/inspect"
	"locktop/keyspace/metrics"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/report"
	"locktop/loadgen/witness"
)

// jsonKey is a row of docs/json.md.
type jsonKey struct {
	types   string // "list of [lock](#lock)"
	always  bool   // the page does not say when it is absent
	printed bool   // by a command, or of a type
}

// jsonPage is docs/json.md: the keys of each section, and the sections whose keys it has, too.
type jsonPage struct {
	*testing.T
	keys map[string]map[string]*jsonKey
	with map[string][]string
}

func readJSONPage(t *testing.T) jsonPage {
	p := jsonPage{t, make(map[string]map[string]*jsonKey), make(map[string][]string)}
	link, code := regexp.MustCompile(`\[([a-z ]+)\]\(#`), regexp.MustCompile("`([a-z0-9_]+)`")
	for _, section := range regexp.MustCompile(`(?m)^###? `).Split(readText(t, "../docs/json.md"), -1)[1:] {
		name, text, _ := strings.Cut(section, "\n")
		p.keys[name] = make(map[string]*jsonKey)
		for line := range strings.Lines(text) {
			if _, with, found := strings.Cut(line, "With the keys of "); found {
				for _, l := range link.FindAllStringSubmatch(with, -1) {
					p.with[name] = append(p.with[name], l[1])
				}
			}
			cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), " |")
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			for _, key := range code.FindAllStringSubmatch(cells[0], -1) {
				p.keys[name][key[1]] = &jsonKey{types: strings.TrimSpace(cells[1]), always: strings.TrimSpace(cells[3]) == ""}
			}
		}
	}
	return p
}

// find returns the row of a key of a section; nil if it has none.
func (p jsonPage) find(section, key string) *jsonKey {
	row := p.keys[section][key]
	for _, other := range p.with[section] {
		if row == nil {
			row = p.find(other, key)
		}
	}
	return row
}

// has checks that the page has the keys of a document, with their types.
func (p jsonPage) has(section string, document map[string]any) {
	for key, value := range document {
		row := p.find(section, key)
		if row == nil {
			p.Errorf("docs/json.md, %s: it has no key %s: %v", section, key, value)
			continue
		}
		row.printed = true
		p.hasType(section+"."+key, row.types, value)
	}
	for key, row := range p.keys[section] {
		if _, is := document[key]; !is && row.always && !strings.Contains(key, "_at_") {
			p.Errorf("docs/json.md, %s: it does not say when %s is absent: %v", section, key, document)
		}
	}
}

func (p jsonPage) hasType(name, types string, value any) {
	of, isList := strings.CutPrefix(types, "list of ")
	text, isText := value.(string)
	number, isNumber := value.(float64)
	document, isDocument := value.(map[string]any)
	var ok bool
	switch all, is := value.([]any); {
	case isList:
		ok = is
		for _, one := range all {
			p.hasType(name, of, one)
		}
	case strings.HasPrefix(types, "["):
		p.has(types[1:strings.Index(types, "]")], document)
		ok = isDocument
	case types == "string":
		ok = isText
	case types == "moment":
		_, err := time.Parse("2006-01-02T15:04:05.000Z", text)
		ok = err == nil
	case types == "number" && isDocument: // a figure of a baseline
		p.has("change", document)
		ok = true
	case types == "number", types == "integer":
		ok = isNumber && (types == "number" || number == float64(int64(number)))
	case types == "boolean":
		_, ok = value.(bool)
	}
	check.True(p, ok, "docs/json.md, %s is %v, not %s", name, value, types)
}

// allPrinted checks that each key of the page was printed, and forgets it.
func (p jsonPage) allPrinted(by string) {
	for _, section := range slices.Sorted(maps.Keys(p.keys)) {
		for _, key := range slices.Sorted(maps.Keys(p.keys[section])) {
			row := p.keys[section][key]
			check.True(p, row.printed, "docs/json.md, %s: no %s has %s", section, by, key)
			row.printed = false
		}
	}
}

// hasEach checks all lines of an output.
func (p jsonPage) hasEach(section, output string) {
	p.Helper()
	check.True(p, output != "", "%s: nothing was printed", section)
	for line := range strings.Lines(output) {
		document := decoded[map[string]any](p.T, line)
		of := section
		if document["event"] == findingName {
			of = "watch finding"
		}
		p.has(of, document)
	}
}

// fill makes one element in each list of a document and, if known, sets everything else that JSON shows.
func fill(v reflect.Value, known bool) {
	switch kind := v.Kind(); {
	case kind == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), known)
	case kind == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), known)
		}
	case !known:
	case kind == reflect.String:
		v.SetString("2026-11-20T12:31:07.120Z")
	case kind == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case kind == reflect.Float64:
		v.SetFloat(1)
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), true)
	}
}

// jsonDocuments are the types of all documents and lines, by their section.
var jsonDocuments = map[string]any{
	"list": &render.Document{}, "watch": &render.Event{}, "watch finding": &render.FindingEvent{}, "inspect": &jsonInspection{}, "doctor": &jsonDiagnosis{},
	"who": &jsonIdentity{}, "contention": &render.ContentionDocument{}, "explain": &render.StoryDocument{}, "release": &jsonRelease{}, "audit lines": &auditLine{},
	"format": &jsonFormat{}, "scenario": &jsonScenario{}, "version": &jsonVersion{}, "on stderr": &jsonNote{},
}

// One name has one type in all commands.
func TestThePageOfTheJSONHasEveryKeyOfTheTypes(t *testing.T) {
	p := readJSONPage(t)
	for section, document := range jsonDocuments {
		fill(reflect.ValueOf(document).Elem(), true)
		p.hasEach(section, string(check.Must(json.Marshal(document))(t)))
	}
	p.has("formats", map[string]any{"formats": []any{}})
	p.has("scenarios", map[string]any{"scenarios": []any{}})
	printLoad(p) // its types are private
	p.allPrinted("type")
	types := make(map[string]string)
	for section, keys := range p.keys {
		for key, row := range keys {
			is := strings.NewReplacer("moment", "string", "number", "integer").Replace(regexp.MustCompile(`\[.*`).ReplaceAllString(row.types, "object"))
			if section == "figures" || section == "figure" {
				continue // the names of thresholds
			}
			check.True(t, types[key] == "" || types[key] == is, "%s is %q in %s, and %q elsewhere", key, is, section, types[key])
			types[key] = is
		}
	}
}

// The locks of all formats, and what no embedded server has: a Redlock, requests, MONITOR and an incident.
func TestThePageOfTheJSONHasEveryKeyThatIsPrinted(t *testing.T) {
	t.Parallel()
	p := readJSONPage(t)
	addr := servertest.EmbeddedForTest(t).Addr()
	loadSamples(t, clientTo(t, addr))
	stuck := servertest.EmbeddedForTest(t).Addr() // with one lock, which doctor reads for a second
	send(t, stuck, "SET", "lock:a", token)
	printed := func(o outcome) bool { return strings.Contains(o.out, "ttl_ms") }
	p.hasEach("watch", locktopFor(t, printed, "watch", "--json", "-u", "redis://"+addr).out)
	for _, key := range []string{"orders:4711", "orders:4713", "{gpu}:timeout", "desks"} {
		p.hasEach("inspect", locktop(t, "inspect", "--json", "-u", "redis://"+addr, key).out)
	}
	audit := t.TempDir() + "/audit"
	for _, flags := range [][]string{{"--dry-run"}, {"--write", "--yes", "--audit-log", audit}} {
		p.hasEach("release", locktop(t, append([]string{"release", "--json", "-u", "redis://" + addr, "orders:4711"}, flags...)...).out)
	}
	p.hasEach("audit lines", readText(t, audit))
	for section, args := range map[string][]string{
		"list": {"--all", "-u", "redis://" + addr}, "doctor": {"--for", "100ms", "-u", "redis://" + stuck}, "formats": nil, "scenarios": nil, "version": nil,
	} {
		p.hasEach(section, locktop(t, append([]string{section, "--json"}, args...)...).out)
	}
	p.hasEach("on stderr", locktop(t, "list", "--json", "-u", "redis://127.0.0.1:1").errors)
	printRareKeys(p)
	events := t.TempDir() + "/events"
	p.hasEach("load", locktop(t, "load", "freeze", "--demo", "--duration", "500ms", "--json", "--events", events).out)
	p.hasEach("load event", readText(t, events))
	printLoad(p)
	p.allPrinted("output")
}

// printLoad prints a report and an event of a load with everything that one may have.
func printLoad(p jsonPage) {
	p.hasEach("load", strings.ReplaceAll(readText(p.T, "../loadgen/report/testdata/report.json"), "\n", ""))
	now := time.Date(2026, 11, 20, 12, 31, 7, 120e6, time.UTC)
	r := report.Result{
		Proof: &oracle.Proof{Holds: 9, Known: true, Sound: true}, Baseline: new(report.Baseline), Agents: []loadgen.AgentState{{Number: 1}},
		Witness: &witness.Results{Counts: witness.Counts{Crossings: oracle.Crossings{Examples: []oracle.Crossing{{Key: "k", Others: []string{"client-1"}}}}}, Err: io.EOF},
	}
	r.Metrics.Latency.RenewLate.Count = 1
	r.Metrics.Violations.Evidence = []oracle.Evidence{{First: oracle.Side{Client: 1, Inside: true}}}
	for range 3 {
		check.NoError(p, r.Baseline.Add(check.Must(json.Marshal(r))(p)))
	}
	p.hasEach("load", string(check.Must(json.Marshal(r))(p)))
	p.hasEach("suite", string(check.Must(json.Marshal(report.Suite{Rows: []report.Row{{Report: &r}, {}}}))(p)))
	p.hasEach("load event", string(check.Must(json.Marshal(loadgen.Event{
		Seq: 1, At: now, Kind: loadgen.Expired, Key: "k", More: []string{"l"}, Client: 1, Token: "t", Fence: 2, Shared: true, Depth: 2, Fault: loadgen.Freeze,
		Took: time.Second, Text: "text", Deadline: now, Told: now,
	}))(p)))
}

// printRareKeys prints what needs several servers, or a state that lasts.
func printRareKeys(p jsonPage) {
	now := time.Date(2026, 11, 20, 12, 31, 7, 120e6, time.UTC)
	id := keyspace.ID{Node: "a:1", DB: 3, Key: "lock:\xff"}
	old := keyspace.Holder{ID: "a\xff", Label: "web-1", Depth: 2, Mode: keyspace.Write, Seen: now.Add(-time.Minute), Expires: now.Add(time.Minute), Addr: "10.0.0.1:7", ConnectedAt: now, DisconnectedAt: now}
	l := keyspace.Lock{
		Key: id.Key, Node: id.Node, DB: id.DB, Kind: keyspace.Semaphore, Format: "set-nx", Holders: []keyspace.Holder{old}, Fence: 7, Limit: 3,
		Votes:    []keyspace.Vote{{Node: "a:1", Token: "a", Expires: now}, {Node: "b:1", Unreachable: true}, {Node: "c:1", Was: "b", Why: keyspace.Lost}},
		Observed: keyspace.Observed{AskedAt: now, AskedPercent: 50},
	}
	queue := keyspace.Lock{Key: "q", Kind: keyspace.Fair, Format: "redisson-queue", Waiters: []keyspace.Waiter{{ID: "w\xff", Mode: keyspace.Read, Seen: now.Add(-time.Second)}}}
	server := keyspace.Server{Addr: "a:2", Mode: "standalone", Product: "redis", Version: "7.0.15", Role: "master"}
	snap := keyspace.Snapshot{At: now, Locks: []*keyspace.Lock{&l, &queue}, Problems: []string{"a:2 is down"}, Watch: keyspace.WatchStatus{Mode: keyspace.Push, Lag: time.Second},
		Cost: keyspace.Cost{ServerTime: time.Second}, Server: server, Nodes: []keyspace.Node{{Error: "down", AskBlind: "a proxy", Possible: 1, PossibleAtLeast: true, Server: server}}}
	view := render.NewView(snap, false)
	var c connect.Flags
	c.FlagSet()
	to := check.Must(c.Resolve())(p)
	prints := func(section string, print func(io.Writer) error) {
		var out strings.Builder
		check.NoError(p, print(&out))
		p.hasEach(section, out.String())
	}
	for section, document := range map[string]any{
		"list": render.DocumentOf(view), "inspect": inspectionOf(to, inspection{View: view}, queue),
		"doctor": diagnosisOf("", view, snap).json(),
		"watch": render.EventOf(keyspace.Event{At: now, Kind: keyspace.Stolen, Possible: []keyspace.EventKind{keyspace.Released}, Lock: l, Holder: keyspace.Holder{ID: "v", Since: now.Add(-time.Second), Late: time.Second},
			Waiter: keyspace.Waiter{ID: "w"}, Held: time.Second}),
		"watch finding": render.FindingEvent{At: render.Timestamp(now), Event: findingName, KeyedFinding: render.KeyedFindingOf(keyspace.Finding{Lock: id})},
		"entry":         render.EntryOf(keyspace.Entry{Node: "a:1", Key: "\xff", Type: "string", Value: "\xff"}, 0),
		"who": identityOf(identity{lock: l, holder: old, at: now, head: render.HeadOf(snap), known: bySaying, process: keyspace.Process{Host: "web-1", PID: 7},
			clients: []keyspace.Client{{Addr: "10.0.0.1:7", Name: "web", User: "ann", Library: "redis-py", Age: time.Minute}},
			seen:    inspect.Investigation{Suspicion: keyspace.Suspicion{Changes: 3, Hits: 2, Left: 1, Renewers: make([]keyspace.Client, 2)}}}),
		"contention": render.ContentionOf(contention.Report{
			Watched: contention.Span{From: now, Until: now.Add(time.Minute)}, Monitored: contention.Span{From: now, Until: now.Add(time.Minute)},
			Classes: []contention.Class{{Source: holds.Asked}, {Source: holds.Seen, Attempts: 1, Worst: "web-1", WorstShare: 1, P50: contention.Quantile{AtLeast: true}, P99: contention.Quantile{AtLeast: true}}},
			Blames:  []contention.Blame{{Lock: id, Source: holds.Asked, Holder: "web-1"}},
			Waits:   []contention.Blocked{{Lock: id, Holder: "web-1", Waiter: "web-2", Waited: time.Second}}, Orders: []keyspace.Step{{First: "a", Second: "b", Count: 1, Owner: "web-1"}},
		}, snap, 9),
		"release": jsonRelease{Head: render.HeadOf(snap), TTLMS: 1, Owner: "web-1", Locks: []jsonReleased{{Holders: []render.Holder{}, Error: "changed"}}},
		"explain": render.Stories{From: now, To: now, Damage: io.ErrUnexpectedEOF, Calm: []string{"a"}, Stories: []incident.Story{{
			Lock: id, From: now, To: now, Lines: []incident.Line{{At: now, Cost: time.Second, Note: "n"}}, Blocked: time.Second, AtMost: true, Clients: 2,
			Usual: incident.Usual{Holds: 5, P50: time.Second, P99: time.Second},
		}}}.Document(),
	} {
		prints(section, func(w io.Writer) error { return render.JSON(w, document) })
	}
	stderr := messages{to: new(strings.Builder), json: true}
	stderr.warning("w")
	stderr.note("n")
	p.hasEach("on stderr", stderr.to.(*strings.Builder).String())
	log := auditLog{mu: new(sync.Mutex), to: nopCloser{new(strings.Builder)}, who: actor{"ann", "7", "bob", "web-1", "ops"}}
	check.NoError(p, log.Write(keyspace.AuditRecord{ID: "1", At: now, Lock: id, TTL: time.Second, Of: 3, Now: "n", Err: "e"}))
	p.hasEach("audit lines", log.to.(nopCloser).String())
}

type nopCloser struct{ *strings.Builder }

func (nopCloser) Close() error { return nil }

// alwaysKnown are the keys of JSON whose 0 or false is a fact, whatever could be read. A key that may be
// unknown does not belong here: it is absent then.
var alwaysKnown = strings.Fields(`complete up db scanned_count command_count wait_ms ttl_ms length unreachable
	lock_count count held_share waited_ms longest_wait_ms client_count classes_omitted blocked_by_omitted story_count ongoing
	shows_waiters can_release can_extend duration_ms`)

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
		fill(empty.Elem(), false)
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
