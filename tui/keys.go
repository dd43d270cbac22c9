package tui

import (
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/tui/widget"
)

// action is the meaning of a key, by its name in the configuration. bindings alone maps keys to
// actions; pages handle actions.
type action string

// The actions of keys.
const (
	noAction      action = ""
	quit          action = "quit"
	quitAndLeave  action = "quit-and-leave"
	help          action = "help"
	suspend       action = "suspend"
	nextPage      action = "next-page"
	previousPage  action = "previous-page"
	openLocks     action = "locks"
	openTimeline  action = "timeline"
	openLoad      action = "load"
	openNodes     action = "nodes"
	openFindings  action = "findings"
	openEvents    action = "events"
	pause         action = "pause"
	rewind        action = "rewind"
	forward       action = "forward"
	live          action = "live"
	command       action = "command"
	togglePrivacy action = "privacy"
	save          action = "save"
	redraw        action = "redraw"
	rescan        action = "rescan"

	up         action = "up"
	down       action = "down"
	pageUp     action = "page-up"
	pageDown   action = "page-down"
	halfUp     action = "half-page-up"
	halfDown   action = "half-page-down"
	first      action = "first"
	last       action = "last"
	enter      action = "open"
	back       action = "back"
	search     action = "filter"
	nextMatch  action = "next-match"
	lastMatch  action = "previous-match"
	copyIt     action = "copy"
	snooze     action = "snooze"
	actOn      action = "release"
	findClient action = "who"
	tellStory  action = "explain"

	sortMenu    action = "sort"
	invert      action = "reverse"
	groupOwners action = "group"
	wide        action = "wide"
	preview     action = "preview"
	tag         action = "tag"
	faster      action = "faster"
	slower      action = "slower"

	zoomIn        action = "zoom-in"
	zoomOut       action = "zoom-out"
	panLeft       action = "earlier"
	panRight      action = "later"
	previousFault action = "previous-violation"
	nextFault     action = "next-violation"

	startStop      action = "start-stop"
	more           action = "more-clients"
	fewer          action = "fewer-clients"
	longer         action = "longer-holds"
	shorter        action = "shorter-holds"
	fieldUp        action = "field-up"
	fieldDown      action = "field-down"
	stepDown       action = "value-down"
	stepUp         action = "value-up"
	chooseNext     action = "next-client"
	choosePrevious action = "previous-client"
	faultMenu      action = "fault"
	nextScene      action = "next-scene"
	previousScene  action = "previous-scene"
	sceneMenu      action = "scenes"
	writeScenario  action = "write-scenario"
	nodeDown       action = "node-down"
	nodeEmpty      action = "node-empty"
)

// openers lists the actions that open a page, in the order of the numbers of the pages.
var openers = []action{openLocks, openTimeline, openLoad, openNodes, openFindings, openEvents}

// pageOf returns the number of the page that an action opens, counted from 0; -1 if it opens none.
func pageOf(act action) int { return slices.Index(openers, act) }

// pageSet is a set of pages on which a key works.
type pageSet uint16

// The pages, in the order of app.pages. All except the last have a number.
const (
	onLocks pageSet = 1 << iota
	onTimeline
	onLoad
	onNodes
	onFindings
	onEvents
	onLock

	anywhere = onLocks | onTimeline | onLoad | onNodes | onFindings | onEvents | onLock
	onLists  = onLocks | onTimeline | onNodes | onFindings | onEvents | onLock
)

// allPages lists the single pages, in the order of the help and the docs.
func allPages() []pageSet {
	return []pageSet{onLocks, onLock, onTimeline, onLoad, onNodes, onFindings, onEvents}
}

var placeNames = map[pageSet]string{
	onLocks: "locks", onLock: "one lock", onTimeline: "timeline", onLoad: "load", onNodes: "nodes", onFindings: "findings", onEvents: "events",
	anywhere: "everywhere",
}

// String returns the name of a single page, or of the set of all pages.
func (p pageSet) String() string { return placeNames[p] }

// title returns the tab of a single page: its number and its name.
func (p pageSet) title() string {
	name := p.String()
	return strconv.Itoa(bits.TrailingZeros16(uint16(p))+1) + " " + strings.ToUpper(name[:1]) + name[1:]
}

// binding is one line of the key table: a key, or a group of related keys.
type binding struct {
	actions []stroke
	place   pageSet
	label   string // name of the keys for the user; "" derives it from the keys
	word    string // text in the footer; "" hides it there
	help    string // text in the help
}

// stroke is an action with its keys: bubbletea's names, with blanks between them, and "space".
type stroke struct {
	action action
	keys   string
}

// named returns the keys of a binding with their actions.
func (b binding) named() iter.Seq2[string, action] {
	return func(yield func(string, action) bool) {
		for _, s := range b.actions {
			for key := range strings.FieldsSeq(s.keys) {
				if !yield(strings.ReplaceAll(key, "space", " "), s.action) {
					return
				}
			}
		}
	}
}

// bindings is the table of all keys, before the configuration changes it. The footer, the help and
// docs/keys.md list them in this order. {action} in a help is a key of the action.
func bindings() []binding {
	return []binding{
		{[]stroke{{help, "? f1"}}, anywhere, "?", "help", "show or hide this list"},
		{[]stroke{{sceneMenu, "m"}}, anywhere, "m", "scenes", "the menu of scenes of the load, with what there is to see in each"},
		{[]stroke{{command, ":"}}, anywhere, ":", "command", "a command, such as :theme light; Tab completes it, ↑ brings back the one before"},

		{[]stroke{{enter, "enter"}}, onLocks | onTimeline | onFindings | onEvents, "Enter", "open", "open the lock; on findings, open or close a group"},
		{[]stroke{{search, "/"}}, onLocks | onTimeline | onFindings | onEvents, "/", "filter", "filter: word, !not, ~regexp; on locks by key, owner, waiter, kind, state or finding: /finding is all that have one; on the timeline by key or owner"},
		{[]stroke{{enter, "enter"}}, onLock, "Enter", "", "a menu of the locks that its holders hold or wait for, and of those that wait for it"},
		{[]stroke{{actOn, "x"}}, onLocks | onLock | onFindings, "x", "act", "act: release the lock, extend it or set a deadline; no other key changes anything"},
		{[]stroke{{copyIt, "y"}}, onLocks | onLock | onFindings | onEvents, "y", "copy", "copy the key, the token or a command for exactly this hold to the clipboard; on events the key, the client or the event"},
		{[]stroke{{findClient, "W"}}, onLock, "W", "who", "watch the lock for up to 30 s, to find the client that holds it by what it does when the lock changes"},
		{[]stroke{{tellStory, "e"}}, onLock, "e", "story", "explain what happened to the lock: who held it, what it cost, what is not known; again: the lock"},
		{[]stroke{{sortMenu, "s"}}, onLocks, "s", "sort", "sort by a column; the same column again reverses the order"},
		{[]stroke{{invert, "i"}}, onLocks, "i", "reverse", "reverse the order"},
		{[]stroke{{groupOwners, "o"}}, onLocks, "o", "", "group the locks by owner, with what each holds and waits for; again: a row for each class of locks, with its waiting; again: one list"},
		{[]stroke{{preview, "v"}}, onLocks, "v", "preview", "show or hide the selected lock beside or below the table"},
		{[]stroke{{wide, "w"}}, onLocks, "w", "wide", "more columns: fence, renewals, database, node"},
		{[]stroke{{tag, "t"}}, onLocks, "t", "tag", "tag the holds of a lock, or untag them; what acts on locks acts on all that are tagged, and untags them"},
		{[]stroke{{snooze, "z"}}, onFindings | onLock, "z", "snooze", "hide the finding, or all of a group or of the lock, for an hour; again: show them; :snooze 8h is longer"},
		{[]stroke{{faster, "+ ="}, {slower, "-"}}, onLocks, "+ -", "", "refresh more often, less often"},

		{[]stroke{{zoomIn, "+ ="}, {zoomOut, "-"}}, onTimeline, "+ -", "zoom", "a shorter time, a longer time"},
		{[]stroke{{panLeft, "left"}, {panRight, "right"}}, onTimeline, "← →", "pan", "an earlier time, a later time"},
		{[]stroke{{previousFault, "["}, {nextFault, "]"}}, onTimeline, "[ ]", "violations", "to the violation before, to the next"},

		{[]stroke{{enter, "enter"}}, onLoad, "Enter", "type", "type a value for the selected field"},
		{[]stroke{{startStop, "s"}}, onLoad, "s", "start/stop", "start the clients; stop them and release what they hold"},
		{[]stroke{{more, "+ ="}, {fewer, "-"}}, onLoad, "+ -", "clients", "more clients, fewer clients, immediately"},
		{[]stroke{{faultMenu, "f"}}, onLoad, "f", "fault", "inject a fault: a crash, a freeze, a cut …"},
		{[]stroke{{nextScene, "n"}, {previousScene, "b"}}, onLoad, "n b", "scene", "the next scene, the one before"},
		{[]stroke{{stepDown, "left"}, {stepUp, "right"}}, onLoad, "← →", "change", "change the selected field, step by step"},
		{[]stroke{{fieldUp, "k up"}, {fieldDown, "j down"}}, onLoad, "k j ↑ ↓", "", "another field of the form"},
		{[]stroke{{shorter, "["}, {longer, "]"}}, onLoad, "[ ]", "", "shorter holds, longer holds"},
		{[]stroke{{writeScenario, "w"}}, onLoad, "w", "", "write the scenario as it is now to a file, for locktop load FILE"},
		{[]stroke{{choosePrevious, "h"}, {chooseNext, "l"}}, onLoad, "h l", "", "the client, or the agent, that the next fault hits: another one, or any"},

		{[]stroke{{nodeDown, "d"}}, onNodes, "d", "down", "in the demo: take the node down for ten seconds"},
		{[]stroke{{nodeEmpty, "e"}}, onNodes, "e", "empty", "in the demo: restart the node with nothing in it"},

		{[]stroke{{back, "esc"}}, anywhere, "Esc", "", "back by one step: out of the lock, the pause, the filter, the tags, the page"},
		{[]stroke{{back, "h left"}}, onLocks | onLock | onNodes | onFindings | onEvents, "h ←", "", "back, as Esc"},
		{[]stroke{{back, "h"}}, onTimeline, "h", "", "back, as Esc"},
		{[]stroke{{enter, "l right"}}, onLocks | onFindings | onEvents, "l →", "", "open, as Enter"},
		{[]stroke{{enter, "l"}}, onTimeline, "l", "", "open, as Enter"},
		{[]stroke{{nextMatch, "n"}, {lastMatch, "N"}}, onLocks | onTimeline | onFindings | onEvents, "n N", "", "to the next match of the filter, the one before; without a filter, the last one is back"},
		{[]stroke{{up, "k up"}, {down, "j down"}}, onLists, "k j ↑ ↓", "", "up and down"},
		{[]stroke{{pageUp, "pgup ctrl+b"}, {pageDown, "pgdown ctrl+f"}}, onLists, "PgUp PgDn", "", "up and down by a page"},
		{[]stroke{{halfUp, "ctrl+u"}, {halfDown, "ctrl+d"}}, onLists, "^U ^D", "", "up and down by half a page"},
		{[]stroke{{first, "g home"}, {last, "G end"}}, onLists, "g G", "", "to the first, to the last"},

		{[]stroke{{pause, "space"}}, anywhere, "space", "pause", "freeze the display; sampling continues"},
		{[]stroke{{rewind, "< ,"}, {forward, "> ."}}, anywhere, "< >", "rewind", "a second back in time, a second forward; in a recording five seconds"},
		{[]stroke{{live, "F"}}, anywhere, "F", "", "back to now"},
		{[]stroke{{openLocks, "1"}, {openTimeline, "2"}, {openLoad, "3"}, {openNodes, "4"}, {openFindings, "5"}, {openEvents, "6"}}, anywhere, "1 … 6", "", "locks, timeline, load, nodes, findings, events"},
		{[]stroke{{nextPage, "tab"}, {previousPage, "shift+tab"}}, anywhere, "Tab", "next page", "the next page; with Shift the page before"},
		{[]stroke{{togglePrivacy, "p"}}, anywhere, "p", "", "privacy: keys and owners as hashes, to show the screen to others"},
		{[]stroke{{save, "ctrl+s"}}, anywhere, "^S", "", "save the frame as text, with colours, or as SVG"},
		{[]stroke{{rescan, "ctrl+r f5"}}, anywhere, "^R F5", "", "scan all keys again now, without the limit of --budget"},
		{[]stroke{{redraw, "ctrl+l"}}, anywhere, "^L", "", "draw the screen again"},
		{[]stroke{{suspend, "ctrl+z"}}, anywhere, "^Z", "", "to the shell; fg comes back"},
		{[]stroke{{quit, "q ctrl+c"}, {quitAndLeave, "Q"}}, anywhere, "q", "quit", "leave the page, and on the first page quit; {quit-and-leave} quits at once and leaves the last frame on the terminal"},
	}
}

// onMouse passes clicks and wheel events to the page. Line 0 is the first line of the page.
func (a *app) onMouse(msg tea.MouseMsg) tea.Cmd {
	if a.dialog != nil {
		return a.onMenuMouse(msg)
	}
	top := a.state.frame().top()
	steps := map[tea.MouseButton]int{tea.MouseButtonWheelUp: -3, tea.MouseButtonWheelDown: 3}[msg.Button]
	switch {
	case steps != 0:
		if p, ok := a.page().(scroller); ok {
			p.scroll(&a.state, steps)
		}
	case msg.Button != tea.MouseButtonLeft || msg.Action != tea.MouseActionPress:
	case msg.Y == 0:
		a.clickTab(msg.X)
	case msg.Y == a.screen.h-1 && a.state.frame().footer:
		return a.clickFooter(msg.X)
	case msg.Y >= top:
		if p, ok := a.page().(clicker); ok && p.click(&a.state, msg.X, msg.Y-top) {
			return a.follow(a.perform(enter))
		}
	}
	return nil
}

// mouseHelp is what the mouse does, for the help and the docs.
func mouseHelp() []explained {
	return []explained{
		{"click", "select a row, and with a second click open it as Enter does; open a tab, sort by a title, choose from a menu, press a key of the last line; a question before a change takes keys only"},
		{"wheel", "scroll; --no-mouse leaves the mouse to the terminal, to select text"},
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

// clickFooter does what the key at column x of the last line does; of a group, its first key.
func (a *app) clickFooter(x int) tea.Cmd {
	if a.notice.text != "" {
		a.notice = notice{}
		return nil
	}
	at := 0
	for _, b := range a.footerKeys(a.place()) {
		at += a.footerWidth(b)
		if x < at {
			return a.follow(a.perform(b.actions[0].action))
		}
	}
	return nil
}

// clickTab opens the page whose tab is at column x of the first line.
func (a *app) clickTab(x int) {
	left, _ := a.header(&a.state)
	at := 0
	for i, tab := range left[:1+a.numbered()] {
		if i > 0 && x >= at && x < at+widget.Width(tab.text) {
			a.goToPage(i - 1)
			return
		}
		if tab.text != "" {
			at += widget.Width(tab.text) + tab.gap()
		}
	}
}
