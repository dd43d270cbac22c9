package tui

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/internal/humanize"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/loadgen"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // the screen shows the time of day
	os.Exit(servertest.Tests{M: m, Parallel: 4}.Run())
}

// driver plays a user: it presses keys and reads the screen. It replaces bubbletea and has no terminal. It runs in a
// synctest bubble, where the clock starts at midnight and advances only while all goroutines wait.
type driver struct {
	t       *testing.T
	app     *app
	msgs    chan tea.Msg
	pressed map[pageSet]map[string]bool
	checked string // the last frame that has its shape
	copied  string // the last text in the clipboard
	saved   []byte // the last file

	quit, suspended bool
}

// drive calls play with a screen of 100×30 that has its first snapshot.
func drive(t *testing.T, w Config, play func(d *driver)) {
	t.Helper()
	driveNew(t, func(*testing.T) Config { return w }, play)
}

// driveNew is drive with a Config that is made inside the bubble.
func driveNew(t *testing.T, open func(t *testing.T) Config, play func(d *driver)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		ctx, stop := context.WithCancel(context.Background())
		defer func() { // in every case, let everything in progress end
			stop()
			time.Sleep(tickInterval)
		}()
		d := &driver{t: t, msgs: make(chan tea.Msg, 100), pressed: map[pageSet]map[string]bool{}}
		w.Clipboard = func(text string) error { d.copied = text; return nil }
		w.Frames = func(name string, data []byte) (string, error) { d.saved = data; return "/tmp/" + name, nil }
		d.app = newApp(ctx, w)
		d.run(d.app.Init())
		d.size(100, 30).wait(tickInterval)
		play(d)
	})
}

// run starts a command, as bubbletea does.
func (d *driver) run(cmd tea.Cmd) {
	if cmd != nil {
		go func() { d.msgs <- cmd() }()
	}
}

// settle delivers messages until nothing more happens without the clock
// advancing. Then it checks the frame, unless nothing was delivered.
func (d *driver) settle() *driver {
	d.t.Helper()
	for delivered := false; ; delivered = true {
		synctest.Wait()
		select {
		case msg := <-d.msgs:
			d.update(msg)
		default:
			if delivered {
				d.checkShape()
			}
			return d
		}
	}
}

// deliver delivers what a user does, and checks the frame after it.
func (d *driver) deliver(msg tea.Msg) {
	d.t.Helper()
	d.update(msg)
	d.checkShape()
}

func (d *driver) update(msg tea.Msg) {
	switch msg := msg.(type) {
	case nil:
	case tea.BatchMsg:
		for _, cmd := range msg {
			d.run(cmd)
		}
	case tea.QuitMsg:
		d.quit = true
	case tea.SuspendMsg:
		d.suspended = true
	default:
		_, cmd := d.app.Update(msg)
		d.run(cmd)
	}
}

// checkShape checks that every frame fits its window and contains only characters that the screen itself writes.
func (d *driver) checkShape() {
	d.t.Helper()
	frame := d.app.View()
	if frame == d.checked {
		return // most messages change nothing
	}
	fault := faultOf(frame, d.app.screen.w, d.app.screen.h)
	check.Require(d.t, fault == "", "%dx%d: %s", d.app.screen.w, d.app.screen.h, fault)
	d.checked = frame
}

// faultOf returns what is wrong with a frame, or "".
func faultOf(frame string, w, h int) string {
	if w <= 0 || h <= 0 {
		if frame != "" {
			return "a frame without a window"
		}
		return ""
	}
	lines := strings.Split(frame, "\n")
	if len(lines) != h {
		return fmt.Sprintf("it has %d lines", len(lines))
	}
	for i, line := range lines {
		n, fault := measured(line)
		if fault == "" && n != w {
			fault = fmt.Sprintf("is %d cells wide", n)
		}
		if fault != "" {
			return fmt.Sprintf("line %d %s: %q", i, fault, line)
		}
	}
	return ""
}

// measured returns the width of a line, and a fault if the line has anything except visible runes and SGR sequences.
func measured(line string) (width int, fault string) {
	for line != "" {
		if rest, ok := cutSGR(line); ok {
			line = rest
			continue
		}
		r, size := utf8.DecodeRuneInString(line)
		switch {
		case r >= ' ' && r < 0x7f, r >= 0x2500 && r <= 0x259f: // box-drawing characters and blocks
			width++
		case r == utf8.RuneError && size == 1, !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S):
			return 0, fmt.Sprintf("has %U in it", r)
		default:
			width += ansi.StringWidth(line[:size])
		}
		line = line[size:]
	}
	return width, ""
}

// cutSGR removes an SGR sequence from the beginning of a line.
func cutSGR(line string) (rest string, ok bool) {
	args, ok := strings.CutPrefix(line, "\x1b[")
	if !ok {
		return line, false
	}
	return strings.CutPrefix(strings.TrimLeft(args, "0123456789;"), "m")
}

func (d *driver) size(w, h int) *driver {
	d.t.Helper()
	d.deliver(tea.WindowSizeMsg{Width: w, Height: h})
	return d.settle()
}

// wait advances the clock, in steps shorter than the tick interval of the screen.
func (d *driver) wait(span time.Duration) *driver {
	d.t.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); {
		time.Sleep(min(tickInterval/5, time.Until(end)))
		d.settle()
	}
	return d
}

// press presses keys, by their bubbletea names.
func (d *driver) press(keys ...string) *driver {
	d.t.Helper()
	for _, name := range keys {
		at := d.app.place()
		if d.pressed[at] == nil {
			d.pressed[at] = map[string]bool{}
		}
		d.pressed[at][name] = true
		d.deliver(keyNamed(name))
		d.settle()
	}
	return d
}

// enter types a text, one character at a time.
func (d *driver) enter(text string) *driver {
	d.t.Helper()
	for _, r := range text {
		d.press(string(r))
	}
	return d
}

func keyNamed(name string) tea.KeyMsg {
	if plain, alt := strings.CutPrefix(name, "alt+"); alt {
		k := keyNamed(plain)
		k.Alt = true
		return k
	}
	if name == " " {
		return tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}}
	}
	for k := tea.KeyType(-120); k < 128; k++ {
		if k != tea.KeyRunes && k.String() == name {
			return tea.KeyMsg{Type: k}
		}
	}
	return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(name)}
}

// screen returns the text of the screen without styles.
func (d *driver) screen() string { return ansi.Strip(d.app.View()) }

// line returns the first line of the screen that contains text.
func (d *driver) line(text string) string {
	d.t.Helper()
	for _, line := range strings.Split(d.screen(), "\n") {
		if strings.Contains(line, text) {
			return line
		}
	}
	d.t.Fatalf("no line with %q on the screen:\n%s", text, d.screen())
	return ""
}

// wantLine expects texts in the first line of the screen that contains one.
func (d *driver) wantLine(of string, texts ...string) *driver {
	d.t.Helper()
	line, screen := d.line(of), d.screen()
	for _, text := range texts {
		check.Require(d.t, strings.Contains(line, text), "no %q in %q:\n%s", text, line, screen)
	}
	return d
}

func (d *driver) want(texts ...string) *driver {
	d.t.Helper()
	screen := d.screen()
	for _, text := range texts {
		check.Require(d.t, strings.Contains(screen, text), "no %q on the screen:\n%s", text, screen)
	}
	return d
}

func (d *driver) wantNot(texts ...string) *driver {
	d.t.Helper()
	screen := d.screen()
	for _, text := range texts {
		check.Require(d.t, !strings.Contains(screen, text), "there is %q on the screen:\n%s", text, screen)
	}
	return d
}

// wantOrder expects texts in order from top to bottom.
func (d *driver) wantOrder(texts ...string) *driver {
	d.t.Helper()
	screen, at := d.screen(), 0
	for _, text := range texts {
		i := strings.Index(screen[at:], text)
		check.Require(d.t, i >= 0, "no %q below the ones before, of %q:\n%s", text, texts, screen)
		at += i
	}
	return d
}

// golden compares the screen, with its styles, with a file.
func (d *driver) golden(name string) {
	d.t.Helper()
	golden.Check(d.t, name+".ansi", d.app.View()+"\n")
}

// sourceFunc makes a Source of a function.
type sourceFunc func(context.Context) (keyspace.Snapshot, error)

func (f sourceFunc) Snapshot(ctx context.Context) (keyspace.Snapshot, error) { return f(ctx) }

// fakeServer is a keyspace that tests change while the screen shows it, but not while a command runs.
type fakeServer struct {
	locks   []keyspace.Lock
	nodes   []keyspace.Node
	last    keyspace.Snapshot
	blocked int64    // clients in a blocking command
	evicts  string   // its maxmemory-policy; "" means without a memory limit
	unseen  []string // its Problems
	err     error
	ahead   time.Duration // of the server's clock
	block   chan struct{} // snapshots wait until it is closed
	looks   int           // number of snapshots so far
	inUse   int           // concurrent calls now
	peak    int           // maximum of concurrent calls

	edit func(*keyspace.Snapshot) // changes each snapshot; may be nil
}

// holding returns a server with locks.
func holding(locks ...keyspace.Lock) *fakeServer { return &fakeServer{locks: locks} }

func (v *fakeServer) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	v.looks++
	v.inUse++
	v.peak = max(v.peak, v.inUse)
	if v.block != nil {
		select {
		case <-v.block:
		case <-ctx.Done():
		}
	}
	v.inUse--
	var locks []*keyspace.Lock
	for _, l := range v.locks {
		locks = append(locks, &l)
	}
	slices.SortStableFunc(locks, func(a, b *keyspace.Lock) int { // in the order of a snapshot
		return cmp.Or(strings.Compare(a.Node, b.Node), a.DB-b.DB, strings.Compare(a.Key, b.Key))
	})
	about := keyspace.Server{Mode: "standalone", Version: "7.0.15", Addr: "127.0.0.1:6379", Blocked: v.blocked}
	if v.evicts != "" {
		about.MaxMemory, about.Policy = 1<<20, v.evicts
	}
	snap := keyspace.Snapshot{
		At:       time.Now().Add(v.ahead),
		Locks:    locks,
		Nodes:    v.nodes,
		Complete: true,
		Cost:     keyspace.Cost{Scanned: 1204, Keys: 1204, Commands: 12, WaitTime: 2300 * time.Microsecond},
		Server:   about,
		Problems: v.unseen,
	}
	for i, l := range keyspace.CarryOver(v.last, snap).Locks { // what a source knows besides is in the locks
		snap.Locks[i].TTLSet = l.TTLSet
	}
	v.last = snap
	if v.edit != nil {
		v.edit(&snap)
	}
	return snap, v.err
}

// watched returns the server with changes that a watch reports. events are those of the next snapshot; nil = none ever.
func (v *fakeServer) watched(mode keyspace.WatchMode, events *[]keyspace.Event) *fakeServer {
	v.edit = func(s *keyspace.Snapshot) {
		if s.Watch.Mode = mode; events != nil {
			s.Events, *events = *events, nil
		}
	}
	return v
}

// midnight is the time at which the clock of every bubble starts.
var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time  { return midnight.Add(d) }
func before(d time.Duration) time.Time { return midnight.Add(-d) }

// mutex returns a simple mutex.
func mutex(key, owner string, ttl time.Duration) keyspace.Lock {
	l := keyspace.Lock{
		Key: key, Format: "set-nx", Confidence: keyspace.Likely, Kind: keyspace.Mutex,
		Holders: []keyspace.Holder{{ID: owner, Depth: 1, Since: before(2 * time.Second)}},
		Node:    "127.0.0.1:6379",
	}
	if ttl > 0 {
		l.Expires = after(ttl)
		l.Holders[0].Expires = l.Expires
	}
	return l
}

// sampleServer returns a server with locks of many kinds.
func sampleServer() *fakeServer {
	orders := mutex("lock:orders:4711", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", 13*time.Second+500*time.Millisecond)
	orders.Format, orders.Kind, orders.Confidence = "redisson", keyspace.Reentrant, keyspace.Certain
	orders.Holders[0].Label, orders.Holders[0].Depth, orders.Holders[0].Since = "pay-7:52", 3, before(41*time.Second)
	orders.Renewals, orders.Renewed, orders.Fence = 4, before(3200*time.Millisecond), 812
	for i := range 11 {
		orders.Waiters = append(orders.Waiters, keyspace.Waiter{ID: "api-" + humanize.Count(i+2), Since: before(time.Duration(11-i) * time.Second)})
	}
	nightly := mutex("job:nightly", "cron-2", 0)
	nightly.Holders[0].Since = before(3*time.Hour + 12*time.Minute)
	catalog := mutex("rw:catalog", "api-1", 7500*time.Millisecond)
	catalog.Format, catalog.Kind = "redisson-rw", keyspace.RW
	catalog.Holders = nil
	for _, id := range []string{"api-1:11", "api-2:17", "api-3:04", "api-9:33"} {
		catalog.Holders = append(catalog.Holders, keyspace.Holder{ID: id, Depth: 1, Mode: keyspace.Read, Since: before(7 * time.Second), Expires: after(7500 * time.Millisecond)})
	}
	catalog.Waiters = []keyspace.Waiter{{ID: "etl-1", Mode: keyspace.Write, Since: before(time.Second)}, {ID: "etl-2", Mode: keyspace.Write}}
	catalog.DB = 2
	wide := mutex("鎖:東京:注文", "東京-1", 2*time.Second)
	index := mutex("rw:index", "builder-1", 28*time.Second)
	index.Format, index.Kind, index.Holders[0].Mode = "redisson-rw", keyspace.RW, keyspace.Write
	queue := mutex("fair:mail", "", 0)
	queue.Format, queue.Kind, queue.Holders = "redisson-fair", keyspace.Fair, nil
	queue.Waiters = []keyspace.Waiter{{ID: "mailer-3", Since: before(4 * time.Second)}}
	long := mutex("cache:rebuild:products:category:outdoor:tents:lightweight:4711", "worker-12.eu-west-1.example:9913", 90*time.Second)
	return holding(long, queue, nightly, mutex("lock:{inv}:sku9", "9f3c2b1a", 8*time.Second), orders, catalog, index, wide)
}

// fakeLoad is a load that only returns what the test sets.
type fakeLoad struct {
	usual    loadgen.Scenario // without s
	mu       sync.Mutex
	m        loadgen.Metrics
	clients  int
	s        *loadgen.Scenario // the requested scenario
	injected []loadgen.Fault
	events   []loadgen.Event
	others   []loadgen.Compared
	fails    error // of Start
	nodes    int   // of a quorum
}

func (g *fakeLoad) Start() error { return cmp.Or(g.fails, g.run(g.fails == nil)) }
func (g *fakeLoad) Stop() error  { return g.run(false) }

func (g *fakeLoad) run(on bool) error {
	g.change(func(m *loadgen.Metrics) { m.Running = on })
	return nil
}

func (g *fakeLoad) Apply(s loadgen.Scenario) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.s = &s
	g.setClients(s.Clients)
	return nil
}

func (g *fakeLoad) setClients(n int) {
	g.clients, g.m.Clients.Total = n, n
	g.m.Clients.States = make([]loadgen.ClientState, n)
}

func (g *fakeLoad) Inject(f loadgen.Fault) error {
	g.injected = append(g.injected, f)
	return nil
}

func (g *fakeLoad) Check(s loadgen.Scenario) error {
	if g.nodes == 0 { // it runs all
		return s.Validate()
	}
	return loadgen.Servers{Nodes: make([]loadgen.RedisClient, g.nodes)}.Supports(s)
}

func (g *fakeLoad) Events(seen uint64) []loadgen.Event {
	return g.events[min(int(seen), len(g.events)):]
}
func (g *fakeLoad) Beside() []loadgen.Compared { return g.others }

func (g *fakeLoad) Metrics() loadgen.Metrics {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m
}

func (g *fakeLoad) Scenario() loadgen.Scenario {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.s != nil:
		return *g.s
	case g.usual.Name == "":
		g.usual = hotKey(g.clients)
	}
	return g.usual
}

// hotKey returns the scenario of a load that no test has given another.
func hotKey(clients int) loadgen.Scenario {
	return loadgen.Scenario{
		Name: "hot-key", Caption: "Twenty clients fight over three keys. Each holds one for a moment, then thinks.",
		Clients: clients, Keys: loadgen.Keys{N: 3, Prefix: "load:{0}:"}, Lock: loadgen.Lock{TTL: 5 * time.Second},
		Hold: loadgen.Exp(20 * time.Millisecond), Think: loadgen.Const(50 * time.Millisecond),
	}.WithDefaults()
}

// runningLoad returns a load that has been running for some time.
func runningLoad() *fakeLoad {
	g := &fakeLoad{clients: 20, m: loadgen.Metrics{
		Elapsed: 94 * time.Second, Running: true,
		Clients: loadgen.ClientCounts{Total: 20, Idle: 11, Waiting: 6, Holding: 3},
		Counts:  loadgen.Counts{Arrivals: 112_345, Acquired: 112_300, Released: 112_290, Lost: 7, TimedOut: 39},
		Latency: loadgen.Latencies{Wait: loadgen.Latency{P50: 1200 * time.Microsecond, P99: 48 * time.Millisecond, Max: 1300 * time.Millisecond}},
	}}
	for i := range 95 {
		n := int64(900 + (i*i*37)%600)
		g.m.Seconds = append(g.m.Seconds, loadgen.Second{Acquired: n, Wait: loadgen.Latency{P99: time.Duration(30+(i*13)%25) * time.Millisecond}})
	}
	for i := range 20 {
		g.m.Clients.States = append(g.m.Clients.States, []loadgen.ClientState{loadgen.Thinking, loadgen.Queued, loadgen.Thinking, loadgen.Inside, loadgen.Queued, loadgen.Thinking}[(i*7)%6])
	}
	return g
}

// change changes the metrics of the load.
func (g *fakeLoad) change(metrics func(m *loadgen.Metrics)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	metrics(&g.m)
}

// loadConfig returns a Config with a running load.
func loadConfig() (Config, *fakeLoad) {
	w, g := testConfig(), runningLoad()
	w.Load = g
	return w, g
}

func testConfig() Config {
	return Config{
		Source: sampleServer(), Load: runningLoad(), Title: "redis://127.0.0.1:6379/0",
		Store: storedHash, Formats: actionFormats(),
	}
}

// storedHash stores a hash and a queue under every key.
func storedHash(_ context.Context, l keyspace.Lock) []RawEntry {
	hash := keyspace.Entry{Key: l.Key, Type: "hash", Expires: l.Expires, Len: 1, Members: []keyspace.Member{{Name: "holder", Value: "3"}}}
	queue := keyspace.Entry{Key: l.Key + ":queue", Type: "list", Len: 40}
	for i := range 20 {
		queue.Members = append(queue.Members, keyspace.Member{Name: fmt.Sprintf("waiter-%02d", i)})
	}
	return []RawEntry{{l.Node, hash, nil}, {l.Node, queue, nil}}
}

// A terminal that is gone answers as a file that is none.
func TestAScreenEndsWithItsTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := check.Must(os.Open(os.DevNull))(t)
		defer file.Close()
		gone := make(chan struct{})
		go untilGone(t.Context(), file, func() { close(gone) })
		<-gone
	})
}
