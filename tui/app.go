package tui

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/tui/widget"
)

// app is the only bubbletea model. It owns the state and dispatches messages.
type app struct {
	state
	ctx    context.Context // cancels all requests
	config Config
	source Source
	pages  []page // in the order of the single pageSets
	open   int
	from   int // page that Esc returns to from the page of one lock

	seekCount int // seeks of the player so far
	seekSeen  int // seeks whose snapshot has arrived

	interrupted bool // by Ctrl-C
	leave       bool // leave the last frame on the terminal

	typed []string // earlier commands, newest last
}

func newApp(ctx context.Context, w Config) *app {
	a := &app{ctx: ctx, config: w, source: w.Source}
	a.pages = []page{newLocksPage(), newTimelinePage(), &loadPage{}, &nodesPage{}, &findingsPage{}, &eventsPage{}, &lockPage{}}
	a.server = widget.Plain(w.Title)
	a.run.load, a.run.scenes, a.run.scene, a.run.quorum = w.Load, w.Scenes, -1, w.Quorum
	if w.Load != nil {
		a.run.scenario = w.Load.Scenario()
	}
	if w.Loader != nil {
		a.run.begin = func(command string) tea.Cmd { return beginLoad(ctx, w.Loader, command) }
	}
	if len(w.Scenes) > 0 && w.Load != nil && w.Scene == "" {
		a.dialog = a.run.scenesMenu()
	}
	a.raw.store, a.formats, a.redisCLI = w.Store, w.Formats, w.RedisCLI
	a.refresher.every = max(w.Every, tickInterval)
	a.syncPlayer()
	a.privacy = newPrivacy()
	a.screen.theme, _ = themeNamed(w.Theme)
	a.screen.glyphs, _ = widget.GlyphsNamed(w.Glyphs)
	if w.Dumb {
		a.screen.theme, a.screen.glyphs = bareTheme(), widget.ASCII()
	}
	return a
}

// Init implements tea.Model.
func (a *app) Init() tea.Cmd {
	scene := slices.IndexFunc(a.run.scenes, func(s loadgen.Scenario) bool { return s.Name == a.config.Scene })
	if scene < 0 || a.run.load == nil {
		return tick()
	}
	a.openIndex(onLoad)
	return tea.Batch(tick(), a.run.startScene(scene))
}

// Update implements tea.Model.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		a.screen.w, a.screen.h = msg.Width, msg.Height
		a.page().arrange(&a.state)
	case tickMsg:
		return a, a.tick(msg)
	case tea.ResumeMsg:
		return a, a.resume()
	case tea.KeyMsg:
		return a, a.onKeys(msg)
	case tea.MouseMsg:
		return a, a.onMouse(msg)
	case snapshotMsg:
		if msg.jump != a.seekCount { // the answer is older than the last seek
			a.refresher.busy, a.refresher.next = false, a.now
			return a, nil
		}
		a.refresher.end(msg.at, msg.err)
		if msg.err != nil {
			return a, nil
		}
		if a.seekSeen != a.seekCount {
			a.resetReplay()
		}
		a.apply(msg.model)
		if msg.model.changed() {
			a.page().arrange(&a.state)
		}
	case metricsMsg:
		a.run.measured(msg)
		if a.run.byAgents() == nil { // agents send only a few of their events
			a.timeline.apply(loadgen.EachKey(msg.events), msg.newRun, msg.scenario.Lock.Limit() > 1)
		}
		if !msg.metrics.Running {
			a.timeline.halt(a.now)
		}
	case connectedMsg:
		a.onConnected(msg)
	case storedMsg:
		a.raw.onAnswer(msg)
	case appliedMsg:
		if msg.err != nil {
			a.rejectStart(shortError(msg.err))
		}
		return a, a.run.applied()
	case startedMsg:
		a.run.launching = false
		if msg.err != nil {
			a.rejectStart(shortError(msg.err))
			return a, nil
		}
		a.run.failed = ""
		a.notify("the clients are running")
	case loadMsg:
		if msg.err != nil {
			a.rejectStart(widget.Plain(msg.err.Error()))
		}
		if msg.load != nil {
			a.run.load, a.run.own, a.run.scenario = msg.load, &msg.own, msg.now
		}
		if msg.err == nil {
			a.run.launching = true
			return a, startLoad(a.run.load)
		}
	case doneMsg:
		a.onDone(msg)
	case actionDoneMsg:
		a.onActionDone(msg)
	case commandMsg:
		return a, a.runCommand(msg.text)
	case openLockMsg:
		a.showLock(msg)
	case openPageMsg:
		a.openIndex(msg.to)
	case crashMsg:
		panic(fmt.Sprintf("%v\n\n%s", msg.value, msg.stack))
	}
	return a, nil
}

func (a *app) tick(msg tickMsg) tea.Cmd {
	a.now = msg.now
	a.syncPlayer()
	a.refresher.checkTimeout(a.now)
	if a.notice.text != "" && a.now.After(a.notice.until) {
		a.notice = notice{}
	}
	cmds := []tea.Cmd{tick(), a.run.measure(), a.readStored()}
	if a.refresher.due(a.now) {
		a.refresher.begin(a.now)
		before := a.live
		if a.seekSeen != a.seekCount {
			before = nil
		}
		cmds = append(cmds, fetchSnapshot(a.ctx, a.source, before, a.seekCount))
	}
	return tea.Batch(cmds...)
}

// resume enables the mouse after a suspension: bubbletea disables it and does not restore it.
func (a *app) resume() tea.Cmd {
	if !a.config.mouse() {
		return nil
	}
	return tea.EnableMouseCellMotion
}

// onConnected switches to another target. The recorded snapshots of the old target are discarded
// with the first new one.
func (a *app) onConnected(msg connectedMsg) {
	if msg.err != nil {
		a.reject(shortError(msg.err))
		return
	}
	a.source, a.server = msg.config.Source, widget.Plain(msg.config.Title)
	a.config.Executor, a.config.CommandStats = msg.config.Executor, msg.config.CommandStats
	a.raw = rawValue{store: msg.config.Store}
	a.locks().reset()
	if a.place() == onLock {
		a.goToPage(a.from)
	}
	a.seekCount++
	a.refresher.next = a.now
	a.notify("looking at " + msg.target.String())
}

// readStored requests the raw value of the selected lock while a page shows it.
func (a *app) readStored() tea.Cmd {
	if locks, ok := a.page().(*locksPage); ok && !locks.beside(&a.state) {
		return nil
	}
	if a.place()&(onLock|onLocks) == 0 {
		return nil
	}
	l, ok := a.selected()
	if !ok {
		return nil
	}
	return a.raw.request(a.ctx, l, a.now)
}

func (a *app) onDone(msg doneMsg) {
	if msg.err != nil {
		a.reject(shortError(msg.err))
		return
	}
	a.notify(msg.text)
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

// press handles a key and then a.next. A tea.Cmd could deliver that message only after the next
// key, which would reach the wrong page.
func (a *app) press(msg tea.KeyMsg) tea.Cmd {
	cmd := a.onKey(msg)
	for a.next != nil {
		next := a.next
		a.next = nil
		_, more := a.Update(next)
		cmd = tea.Batch(cmd, more)
	}
	return cmd
}

// onKey passes a key to the open dialog, or looks it up in the key table.
func (a *app) onKey(msg tea.KeyMsg) tea.Cmd {
	if msg.Type == tea.KeyCtrlC {
		a.interrupted = true
		return tea.Quit
	}
	if a.dialog != nil {
		next, cmd := a.dialog.update(&a.state, msg)
		a.dialog = next
		return cmd
	}
	a.notice = notice{}
	act := actionOf(msg.String(), a.place())
	if act == noAction {
		a.reject(a.noEffect(msg.String()))
		return nil
	}
	return a.perform(act)
}

// noEffect says why a key does nothing on the open page.
func (a *app) noEffect(key string) string {
	if where := pagesOf(key); where != "" {
		return fmt.Sprintf("%s does nothing on this page; it works on: %s; ? shows the keys", widget.Plain(key), where)
	}
	return widget.Plain(key) + " does nothing; ? shows the keys"
}

func (a *app) page() page { return a.pages[a.open] }

// place returns the open page as a pageSet.
func (a *app) place() pageSet { return 1 << a.open }

// numbered returns the number of pages with a tab.
func (a *app) numbered() int { return len(a.pages) - 1 }

// perform handles the actions that are the same on every page, and passes the others to the
// page.
func (a *app) perform(act action) tea.Cmd {
	switch act {
	case quit:
		return tea.Quit
	case quitAndLeave:
		a.leave = true
		return tea.Quit
	case suspend:
		return tea.Suspend
	case redraw:
		return tea.ClearScreen
	case help:
		a.dialog = &helpDialog{page: a.place()}
	case openLocks, openTimeline, openLoad, openNodes, openFindings, openEvents:
		a.goToPage(int(act - openLocks))
	case nextPage:
		a.cyclePage(1)
	case previousPage:
		a.cyclePage(-1)
	case pause, rewind, forward, live:
		a.onTimeKey(act)
		a.page().arrange(&a.state)
	case togglePrivacy:
		a.togglePrivacy()
	case command:
		a.dialog = a.commandPrompt()
	case save:
		a.dialog = a.exportMenu()
	case commandStats:
		a.openCommandStats()
	case copyIt:
		a.openCopy()
	case actOn:
		a.openActionMenu()
	case writeScenario:
		return a.writeScenario()
	case back:
		return a.goBack()
	case faster, slower:
		return a.changePace(act)
	default:
		return a.page().act(&a.state, act)
	}
	return nil
}

// changePace changes the refresh interval, or the playback speed of a recording.
func (a *app) changePace(act action) tea.Cmd {
	if a.config.Player == nil {
		return a.page().act(&a.state, act)
	}
	a.setSpeed(nextSpeed(a.playback.Speed, map[action]int{faster: 1, slower: -1}[act]))
	return nil
}

func (a *app) openCommandStats() {
	if a.config.CommandStats == nil {
		a.reject("the commands are not counted here")
		return
	}
	a.dialog = &commandStatsDialog{stats: a.config.CommandStats}
}

func (a *app) openCopy() {
	if l, ok := a.selected(); ok {
		a.dialog = a.copyMenu(l)
		return
	}
	a.reject("no lock to copy from")
}

// onActionDone reports the result of an action and requests a snapshot immediately.
func (a *app) onActionDone(msg actionDoneMsg) {
	a.refresher.next = a.now
	var changed *keyspace.ChangedError
	switch {
	case msg.err == nil:
		a.notify(msg.pending.did() + " " + a.describe(msg.pending.locks))
	case errors.As(msg.err, &changed):
		a.reject(fmt.Sprintf("%d of %d done; %s", msg.done, len(msg.pending.locks), a.redactText(msg.pending.locks[0].ID(), changed.Error())))
	default:
		a.reject(fmt.Sprintf("%d of %d done; %s", msg.done, len(msg.pending.locks), shortError(msg.err)))
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
		a.unpause()
	}
}

// goBack undoes one step: it leaves the page of one lock, ends the pause, or lets the page
// handle the key.
func (a *app) goBack() tea.Cmd {
	switch {
	case a.place() == onLock:
		a.goToPage(a.from)
	case a.paused != nil:
		a.unpause()
		a.page().arrange(&a.state)
	default:
		return a.page().act(&a.state, back)
	}
	return nil
}

// cyclePage opens the numbered page n places after the open one.
func (a *app) cyclePage(n int) {
	from := a.open
	if a.place() == onLock {
		from = a.from
	}
	a.goToPage((from + n + a.numbered()) % a.numbered())
}

// showLock opens the page of one lock.
func (a *app) showLock(msg openLockMsg) {
	if a.place() != onLock {
		a.from = a.open
	}
	a.pages[a.numbered()] = &lockPage{id: msg.lock.ID().OnAnyNode(), last: msg.lock}
	a.openIndex(onLock)
}

// openIndex opens the page of a place.
func (a *app) openIndex(to pageSet) { a.goToPage(bits.TrailingZeros16(uint16(to))) }

// goToPage opens page i and updates it: a hidden page does not follow snapshots.
func (a *app) goToPage(i int) {
	a.open = i
	a.page().arrange(&a.state)
}

// onMouse passes clicks and wheel events to the page. Line 0 is the first line of the page.
func (a *app) onMouse(msg tea.MouseMsg) tea.Cmd {
	if a.dialog != nil {
		return a.onMenuMouse(msg)
	}
	top := a.state.frame().top()
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		a.wheel(-3)
	case msg.Button == tea.MouseButtonWheelDown:
		a.wheel(3)
	case msg.Button != tea.MouseButtonLeft || msg.Action != tea.MouseActionPress:
	case msg.Y == 0:
		a.clickTab(msg.X)
	case msg.Y >= top:
		if p, ok := a.page().(clicker); ok {
			p.click(&a.state, msg.X, msg.Y-top)
		}
	}
	return nil
}

func (a *app) wheel(steps int) {
	if p, ok := a.page().(scroller); ok {
		p.scroll(&a.state, steps)
	}
}

// onMenuMouse passes clicks and wheel events to a menu; other dialogs ignore them.
func (a *app) onMenuMouse(msg tea.MouseMsg) tea.Cmd {
	m, ok := a.dialog.(*menu)
	if !ok {
		return nil
	}
	var cmd tea.Cmd
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		a.dialog, cmd = m.update(&a.state, tea.KeyMsg{Type: tea.KeyUp})
	case msg.Button == tea.MouseButtonWheelDown:
		a.dialog, cmd = m.update(&a.state, tea.KeyMsg{Type: tea.KeyDown})
	case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress:
		a.dialog, cmd = m.click(&a.state, msg.Y)
	}
	return cmd
}

// View implements tea.Model. It returns exactly as many lines as the window has, each as wide
// as the window.
func (a *app) View() string {
	s := &a.state
	if s.screen.w <= 0 || s.screen.h <= 0 {
		return ""
	}
	lines := a.lines(s)
	if s.dialog != nil {
		lines = s.dialog.draw(s, lines)
	}
	return strings.Join(lines, "\n")
}

// lines returns the lines of the screen: header, summary, page, footer.
func (a *app) lines(s *state) []string {
	f := s.frame()
	lines := make([]string, 0, s.screen.h)
	if f.header {
		lines = append(lines, a.header(s))
	}
	if f.summary {
		lines = append(lines, a.summaryLine(s))
	}
	lines = append(lines, s.body(a.page(), f.body)...)
	if f.footer {
		lines = append(lines, s.footer(a.place()))
	}
	return lines
}

// body draws a page and fills it up to h lines. The colours of stale data are faint.
func (s *state) body(p page, h int) []string {
	shown := *s
	if s.stale() {
		shown.screen.theme = s.screen.theme.faded()
	}
	lines := p.view(&shown, s.screen.w, h)
	blank := strings.Repeat(" ", s.screen.w)
	for len(lines) < h {
		lines = append(lines, blank)
	}
	return lines[:h]
}
