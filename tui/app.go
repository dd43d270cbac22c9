package tui

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/muesli/termenv"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// app is the only bubbletea model. It owns the state and dispatches messages.
type app struct {
	state
	ctx   context.Context // cancels all requests
	pages []page          // in the order of the single pageSets
	open  int
	home  int // the first page
	from  int // page that Esc returns to from the page of one lock

	seekCount int // seeks of the player so far
	seekSeen  int // seeks whose snapshot has arrived

	cannotAct   string       // why the user may not act; "" if that is not known
	acting      sync.RWMutex // read-locked during an action
	interrupted bool         // by Ctrl-C
	leave       bool         // leave the last frame on the terminal
	repaint     bool         // the next frame writes all lines

	typed []string // earlier commands, newest last

	alarm alarm
}

func newApp(ctx context.Context, w Config) *app {
	a := &app{ctx: ctx, state: state{config: w, formats: map[string]keyspace.Format{}}}
	locks := &locksPage{sort: bySeverity, group: noGroup, tags: map[keyspace.ID]keyspace.Lock{}}
	a.pages = []page{locks, &timelinePage{zoom: 4}, &loadPage{}, &nodesPage{}, &findingsPage{opened: map[string]bool{}}, &eventsPage{}, &lockPage{}}
	for _, f := range w.Formats {
		a.formats[f.Name] = f
	}
	a.keymap = newKeymap(w.Keys, w.Commands)
	a.run.load, a.run.scenes, a.run.scene, a.run.quorum = w.Load, w.Scenes, -1, w.Quorum
	if w.Load != nil {
		a.run.scenario = w.Load.Scenario()
	}
	if w.Loader != nil {
		a.run.begin = func() tea.Cmd { return beginLoad(ctx, w.Loader) }
	}
	if len(w.Scenes) > 0 && w.Load != nil && w.Scene == "" {
		a.notice.text = fmt.Sprintf(a.keymap.named("{scenes} shows %s of how locks behave and fail; {help} lists the keys"), humanize.Plural(len(w.Scenes), "scene"))
	}
	a.clients.servers, a.snoozes = map[string]serverClients{}, snoozes{map[findingID]time.Time{}, snoozeFor}
	a.refresher.every = max(w.Every, tickInterval)
	a.syncPlayer()
	_, _ = rand.Read(a.privacy.salt[:]) // never fails
	a.screen.glyphs = widget.GlyphsNamed(w.Glyphs)
	if w.Dumb {
		w.Colours, a.screen.glyphs = termenv.Ascii, widget.ASCII()
	}
	a.screen.renderer = renderer(w.Colours)
	a.screen.theme = themeNamed(w.Theme, a.screen.renderer)
	return a
}

// Init implements tea.Model.
func (a *app) Init() tea.Cmd {
	scene := slices.IndexFunc(a.run.scenes, func(s loadgen.Scenario) bool { return s.Name == a.config.Scene })
	begin := tick()
	if e := a.config.Executor; e != nil {
		begin = tea.Batch(begin, allowWrite(a.ctx, func(context.Context, bool) (Executor, error) { return e, nil }, true))
	}
	if scene < 0 || a.run.load == nil {
		return begin
	}
	a.openIndex(onLoad)
	a.home = a.open
	return tea.Batch(begin, a.run.startScene(scene))
}

// Update implements tea.Model.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := a.handle(msg)
	return a, tea.Batch(cmd, a.startSums())
}

// handle handles a message.
func (a *app) handle(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		a.screen.w, a.screen.h, a.repaint = msg.Width, msg.Height, true
		a.page().arrange(&a.state)
	case tickMsg:
		return a.tick(msg)
	case tea.ResumeMsg:
		return a.resume()
	case tea.KeyMsg:
		return a.onKeys(msg)
	case tea.MouseMsg:
		return a.onMouse(msg)
	case tea.FocusMsg:
		a.alarm.inFocus = true
	case tea.BlurMsg:
		a.alarm.inFocus = false
	case metricsMsg:
		a.run.measured(msg)
		if _, agents := a.run.load.(AgentLoad); !agents { // they send only a few of their events
			a.timeline.apply(loadgen.EachKey(msg.events), msg.newRun, msg.scenario.Lock, msg.scenario.Keys.Prefix+"1")
		}
		if !msg.metrics.Running {
			a.timeline.exact.Halt(a.now)
		}
	case answer:
		msg(a)
	case reply:
		return msg(a)
	}
	return nil
}

func (a *app) tick(msg tickMsg) tea.Cmd {
	a.now = msg.now
	a.syncPlayer()
	a.refresher.silent = a.refresher.busy && a.now.Sub(a.refresher.asked) > checkTimeout
	if !a.notice.until.IsZero() && a.now.After(a.notice.until) {
		a.notice = notice{}
	}
	cmds := []tea.Cmd{tick(), a.run.measure(), a.readStored(), a.listClients()}
	if !a.refresher.busy && !a.now.Before(a.refresher.next) {
		a.refresher.busy, a.refresher.asked, a.refresher.next = true, a.now, a.now.Add(a.refresher.every)
		before := a.live
		if a.seekSeen != a.seekCount {
			before = nil
		}
		cmds = append(cmds, fetchSnapshot(a.ctx, a.config.Source, before, a.seekCount))
	}
	return tea.Batch(cmds...)
}

// resume draws the screen again after a suspension, and enables the mouse: bubbletea disables it and does not restore it.
func (a *app) resume() tea.Cmd {
	a.repaint = true
	if !a.config.mouse() {
		return nil
	}
	return tea.EnableMouseCellMotion
}

// onConnected switches to another target. The recorded snapshots of the old target are discarded
// with the first new one.
func (a *app) onConnected(to Target, w Config, err error) {
	if err != nil {
		a.reject(shortError(err))
		return
	}
	a.config.Source, a.config.Title, a.config.Executor, a.config.Rescan = w.Source, w.Title, w.Executor, w.Rescan
	a.config.Store, a.config.Finder, a.raw = w.Store, w.Finder, rawValue{}
	a.clients.leave()
	a.clients = holderClients{servers: map[string]serverClients{}}
	a.locks().reset()
	a.alarm.known = nil
	if a.place() == onLock {
		a.goToPage(a.from)
	}
	a.seekCount++
	a.refresher.next = a.now
	a.notify("reading " + to.String())
}

// readStored requests the raw value of the selected lock while a page shows it.
func (a *app) readStored() tea.Cmd {
	locks, beside := a.page().(*locksPage)
	beside = beside && locks.beside(&a.state)
	if l, ok := a.selected(); ok && (beside || a.place() == onLock) {
		return a.raw.request(a.ctx, a.config.Store, l, a.now)
	}
	return nil
}

// onKeys handles keys one by one. On a slow connection, bubbletea delivers several letters in
// one message. A paste stays one key.
func (a *app) onKeys(msg tea.KeyMsg) tea.Cmd {
	if msg.Type != tea.KeyRunes || msg.Paste {
		return a.press(msg)
	}
	var cmds []tea.Cmd
	for _, r := range msg.Runes {
		one := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}, Alt: msg.Alt}
		cmds = append(cmds, a.press(one))
	}
	return tea.Batch(cmds...)
}

// press handles a key and then a.next. A message of a tea.Cmd would arrive only after the next key,
// which would reach the wrong page.
func (a *app) press(msg tea.KeyMsg) tea.Cmd { return a.follow(a.onKey(msg)) }

// follow handles what a key or a click has caused.
func (a *app) follow(cmd tea.Cmd) tea.Cmd {
	for a.next != nil {
		next := a.next
		a.next = nil
		cmd = tea.Batch(cmd, next(a))
	}
	return cmd
}

// onKey passes a key to the open dialog, or looks it up in the key table.
func (a *app) onKey(msg tea.KeyMsg) tea.Cmd {
	if msg.Type == tea.KeyCtrlC {
		a.interrupted = true
		return tea.Quit
	}
	act := a.keymap.actionOf(msg.String(), a.place())
	if a.dialog != nil {
		next, cmd := a.dialog.update(&a.state, msg)
		a.dialog = next
		_, typing := next.(*prompt)
		if key := msg.String(); len(key) != 1 || key < "0" || key > "9" || pageOf(act) < 0 || typing {
			return cmd // else a digit opens its page
		}
		a.dialog = nil
		return tea.Batch(cmd, a.perform(act))
	}
	a.notice = notice{}
	if act == noAction {
		key, where := widget.Plain(msg.String()), ""
		if pages := a.keymap.pagesOf(msg.String()); pages != "" {
			where = " on this page; it works on: " + pages
		}
		return a.reject(fmt.Sprintf("%s does nothing%s; %s shows the keys", key, where, a.keymap.key(help)))
	}
	return a.perform(act)
}

func (a *app) page() page { return a.pages[a.open] }

// place returns the open page as a pageSet.
func (a *app) place() pageSet { return 1 << a.open }

// numbered returns the number of pages with a tab.
func (a *app) numbered() int { return len(a.pages) - 1 }

// perform handles the actions that are the same on every page, and passes the others to the
// page.
func (a *app) perform(act action) tea.Cmd {
	if i := commandOf(act, a.config.Commands); i >= 0 {
		return a.runOnLock(a.config.Commands[i])
	}
	switch act {
	case quit:
		if a.open == a.home {
			return tea.Quit
		}
		a.leavePage("")
	case quitAndLeave:
		a.leave = true
		return tea.Quit
	case suspend:
		return tea.Suspend
	case redraw:
		a.repaint = true
	case rescan:
		a.askRescan()
	case help:
		a.dialog = &helpDialog{page: a.place()}
	case openLocks, openTimeline, openLoad, openNodes, openFindings, openEvents:
		a.goToPage(pageOf(act))
	case nextPage:
		a.cyclePage(1)
	case previousPage:
		a.cyclePage(-1)
	case pause, rewind, forward, live:
		a.onTimeKey(act)
		a.page().arrange(&a.state)
	case togglePrivacy:
		a.privacy.on = !a.privacy.on
		a.notify(a.keymap.named(map[bool]string{true: "keys and owners are hashed; {privacy} shows them again", false: "keys and owners are shown"}[a.privacy.on]))
	case command:
		a.dialog = a.commandPrompt()
	case save:
		a.dialog = a.exportMenu()
	case copyIt:
		a.openCopy()
	case actOn:
		a.openActionMenu()
	case findClient:
		return a.findClient()
	case sceneMenu:
		a.openScenes()
	case writeScenario:
		return a.writeScenario()
	case back:
		return a.goBack()
	case faster, slower:
		if a.config.Player == nil { // how often to read the server
			return a.page().act(&a.state, act)
		}
		speed := 1.0
		if slices.Contains(speeds, a.playback.Speed) {
			speed = neighbour(speeds, a.playback.Speed, map[action]int{faster: 1, slower: -1}[act])
		}
		a.setSpeed(speed)
	default:
		return a.page().act(&a.state, act)
	}
	return nil
}

func (a *app) openScenes() {
	switch f := &a.run; {
	case f.load == nil && f.begin == nil:
		a.reject(noLoad)
	case f.load == nil:
		a.reject(a.keymap.named(notStarted))
	case f.awaitsAgents():
		a.reject(f.arrivals() + a.keymap.named("; {start-stop} on the Load page ends the wait"))
	case len(f.scenes) == 0:
		a.reject(noScenes)
	default:
		a.dialog = f.scenesMenu(a.keymap)
	}
}

func (a *app) openCopy() {
	if p, ok := a.page().(*eventsPage); ok && len(p.keys) > 0 {
		a.dialog = a.eventCopyMenu(p.event(&a.state, p.row))
	} else if l, ok := a.selected(); ok {
		a.dialog = a.copyMenu(l)
	} else {
		a.reject("no lock to copy from")
	}
}

// selected returns the selected lock of the open page.
func (a *app) selected() (keyspace.Lock, bool) {
	if p, ok := a.page().(subject); ok {
		return p.subject(&a.state)
	}
	return keyspace.Lock{}, false
}

// onTimeKey handles pause, rewind, forward and live.
func (a *app) onTimeKey(act action) {
	if a.config.Player != nil {
		a.replayKey(act)
		return
	}
	switch act {
	case pause:
		a.pause()
	case rewind:
		a.rewind(-rewindStep)
	case forward:
		a.rewind(rewindStep)
	case live:
		a.paused = nil
	}
}

// goBack undoes one step: it leaves the page of one lock, ends the pause, or lets the page
// handle the key.
func (a *app) goBack() tea.Cmd {
	switch {
	case a.place() == onLock, a.place() == onLoad && a.run.load == nil:
		a.leavePage("")
	case a.paused != nil:
		a.paused = nil
		a.page().arrange(&a.state)
	default:
		return a.page().act(&a.state, back)
	}
	return nil
}

// leavePage goes back to the page before that of a lock, or to the first page. why is the reason
// why the first page has nothing to leave.
func (a *app) leavePage(why string) {
	switch {
	case a.place() == onLock:
		a.goToPage(a.from)
	case a.open != a.home:
		a.goToPage(a.home)
	default:
		a.reject(a.keymap.named(why + "; {quit} quits"))
	}
}

// cyclePage opens the numbered page n places after the open one.
func (a *app) cyclePage(n int) {
	from := a.open
	if a.place() == onLock {
		from = a.from
	}
	a.goToPage((from + n + a.numbered()) % a.numbered())
}

// showLock opens the page of one lock, as it was last seen.
func (a *app) showLock(l keyspace.Lock) {
	if a.place() != onLock {
		a.from = a.open
	}
	a.pages[a.numbered()] = &lockPage{id: l.ID().OnAnyNode(), last: l}
	a.openIndex(onLock)
}

// openIndex opens the page of a place.
func (a *app) openIndex(to pageSet) { a.goToPage(bits.TrailingZeros16(uint16(to))) }

// goToPage opens page i and updates it: a hidden page does not follow snapshots.
func (a *app) goToPage(i int) {
	a.open = i
	a.page().arrange(&a.state)
}
