package tui

import (
	"math/bits"
	"strconv"
	"strings"
)

// action is the meaning of a key. bindings alone maps keys to actions; pages handle actions.
type action uint8

// The actions of keys.
const (
	noAction action = iota
	quit
	quitAndLeave
	help
	suspend
	nextPage
	previousPage
	openLocks
	openTimeline
	openLoad
	openNodes
	openFindings
	openEvents
	pause
	rewind
	forward
	live
	command
	togglePrivacy
	commandStats
	save
	redraw

	up
	down
	pageUp
	pageDown
	halfUp
	halfDown
	first
	last
	enter
	back
	search
	copyIt
	snooze
	actOn
	findClient

	sortLeft
	sortRight
	invert
	groupOwners
	wide
	preview
	tag
	faster
	slower

	zoomIn
	zoomOut
	panLeft
	panRight
	previousFault
	nextFault

	startStop
	more
	fewer
	longer
	shorter
	fieldUp
	fieldDown
	stepDown
	stepUp
	chooseNext
	choosePrevious
	faultMenu
	nextScene
	previousScene
	sceneMenu
	writeScenario
	nodeDown
	nodeEmpty
)

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

// String returns the name of a single page, or of the set of all pages.
func (p pageSet) String() string {
	switch p {
	case onLocks:
		return "locks"
	case onLock:
		return "one lock"
	case onTimeline:
		return "timeline"
	case onLoad:
		return "load"
	case onNodes:
		return "nodes"
	case onFindings:
		return "findings"
	case onEvents:
		return "events"
	case anywhere:
		return "everywhere"
	default:
		return "several pages"
	}
}

// title returns the tab of a single page: its number and its name.
func (p pageSet) title() string {
	name := p.String()
	return strconv.Itoa(bits.TrailingZeros16(uint16(p))+1) + " " + strings.ToUpper(name[:1]) + name[1:]
}

// binding is one line of the key table. In a group of related keys, the first binding describes
// all of them; the others have no texts.
type binding struct {
	action action
	place  pageSet
	keys   []string // bubbletea's names
	label  string   // name of the keys for the user
	word   string   // text in the footer; "" hides it there
	help   string   // text in the help
}

// bindings is the table of all keys. The footer, the help and docs/keys.md list them in this
// order.
func bindings() []binding {
	return []binding{
		{help, anywhere, []string{"?", "f1"}, "?", "help", "show or hide this list"},
		{sceneMenu, anywhere, []string{"m"}, "m", "scenes", "the menu of scenes of the load, with what there is to see in each"},
		{command, anywhere, []string{":"}, ":", "command", "a command, such as :theme light; Tab completes it, ↑ brings back the one before"},

		{enter, onLocks | onTimeline | onFindings | onEvents, []string{"enter"}, "Enter", "open", "open the lock; on findings, unfold or fold a kind"},
		{search, onLocks | onTimeline | onFindings | onEvents, []string{"/"}, "/", "filter", "filter: word, !not, ~regexp; on locks by key, owner, waiter, kind, state or finding: /finding is all that have one; on the timeline by key or owner"},
		{actOn, onLocks | onLock | onFindings, []string{"x"}, "x", "act", "act: release the lock, extend it or set a deadline; no other key changes anything"},
		{copyIt, onLocks | onLock | onFindings | onEvents, []string{"y"}, "y", "copy", "copy the key, the token or a safe command to the clipboard; on events the key, the client or the event"},
		{findClient, onLock, []string{"W"}, "W", "who", "watch the lock for up to 30 s, to find the client that holds it by what it does when the lock changes"},
		{sortLeft, onLocks, []string{"left"}, "← →", "sort", "sort by the next column, left or right"},
		{sortRight, onLocks, []string{"right"}, "", "", ""},
		{invert, onLocks, []string{"i"}, "i", "reverse", "reverse the order"},
		{groupOwners, onLocks, []string{"o"}, "o", "", "group the locks by owner, with what each holds and waits for; again: one list"},
		{preview, onLocks, []string{"v"}, "v", "preview", "show or hide the selected lock beside or below the table"},
		{wide, onLocks, []string{"w"}, "w", "wide", "more columns: fence, renewals, database, node"},
		{tag, onLocks, []string{"t"}, "t", "tag", "tag the lock, or untag it; what acts on locks acts on all that are tagged"},
		{snooze, onFindings | onLock, []string{"z"}, "z", "snooze", "snooze the finding, or all of a kind or of the lock, for an hour; again: wake them; :snooze 8h is longer"},
		{faster, onLocks, []string{"+", "="}, "+ -", "", "look at the server more often, less often"},
		{slower, onLocks, []string{"-"}, "", "", ""},

		{zoomIn, onTimeline, []string{"+", "="}, "+ -", "zoom", "a shorter time, a longer time"},
		{zoomOut, onTimeline, []string{"-"}, "", "", ""},
		{panLeft, onTimeline, []string{"left"}, "← →", "pan", "an earlier time, a later time"},
		{panRight, onTimeline, []string{"right"}, "", "", ""},
		{previousFault, onTimeline, []string{"["}, "[ ]", "violations", "to the violation before, to the next"},
		{nextFault, onTimeline, []string{"]"}, "", "", ""},

		{enter, onLoad, []string{"enter"}, "Enter", "type", "type a value for the selected field"},
		{startStop, onLoad, []string{"s"}, "s", "start/stop", "start the clients; stop them and release what they hold"},
		{more, onLoad, []string{"+", "="}, "+ -", "clients", "more clients, fewer clients, at once"},
		{fewer, onLoad, []string{"-"}, "", "", ""},
		{faultMenu, onLoad, []string{"f"}, "f", "fault", "inject a fault: a crash, a freeze, a cut …"},
		{nextScene, onLoad, []string{"n"}, "n b", "scene", "the next scene, the one before"},
		{previousScene, onLoad, []string{"b"}, "", "", ""},
		{stepDown, onLoad, []string{"left"}, "← →", "change", "change the selected field, step by step"},
		{stepUp, onLoad, []string{"right"}, "", "", ""},
		{fieldUp, onLoad, []string{"k", "up"}, "k j ↑ ↓", "", "another field of the form"},
		{fieldDown, onLoad, []string{"j", "down"}, "", "", ""},
		{longer, onLoad, []string{"]"}, "[ ]", "", "shorter holds, longer holds"},
		{shorter, onLoad, []string{"["}, "", "", ""},
		{writeScenario, onLoad, []string{"w"}, "w", "", "write the scenario as it is now to a file, for locktop load FILE"},
		{choosePrevious, onLoad, []string{"h"}, "h l", "", "the client, or the agent, that the next fault hits: another one, or any"},
		{chooseNext, onLoad, []string{"l"}, "", "", ""},

		{nodeDown, onNodes, []string{"d"}, "d", "down", "in the demo: take the node down for ten seconds"},
		{nodeEmpty, onNodes, []string{"e"}, "e", "empty", "in the demo: restart the node with nothing in it"},

		{back, anywhere, []string{"esc"}, "Esc", "", "back: out of the lock, the pause, the filter"},
		{up, onLists, []string{"k", "up"}, "k j ↑ ↓", "", "up and down"},
		{down, onLists, []string{"j", "down"}, "", "", ""},
		{pageUp, onLists, []string{"pgup", "ctrl+b"}, "PgUp PgDn", "", "up and down by a page"},
		{pageDown, onLists, []string{"pgdown", "ctrl+f"}, "", "", ""},
		{halfUp, onLists, []string{"ctrl+u"}, "^U ^D", "", "up and down by half a page"},
		{halfDown, onLists, []string{"ctrl+d"}, "", "", ""},
		{first, onLists, []string{"g", "home"}, "g G", "", "to the first, to the last"},
		{last, onLists, []string{"G", "end"}, "", "", ""},

		{pause, anywhere, []string{" "}, "space", "pause", "freeze the display; sampling continues"},
		{rewind, anywhere, []string{"<", ","}, "< >", "rewind", "a second back in time, a second forward; in a recording five seconds"},
		{forward, anywhere, []string{">", "."}, "", "", ""},
		{live, anywhere, []string{"F"}, "F", "", "back to now"},
		{openLocks, anywhere, []string{"1"}, "1 … 6", "", "locks, timeline, load, nodes, findings, events"},
		{openTimeline, anywhere, []string{"2"}, "", "", ""},
		{openLoad, anywhere, []string{"3"}, "", "", ""},
		{openNodes, anywhere, []string{"4"}, "", "", ""},
		{openFindings, anywhere, []string{"5"}, "", "", ""},
		{openEvents, anywhere, []string{"6"}, "", "", ""},
		{nextPage, anywhere, []string{"tab"}, "Tab", "next page", "the next page; with Shift the page before"},
		{previousPage, anywhere, []string{"shift+tab"}, "", "", ""},
		{togglePrivacy, anywhere, []string{"p"}, "p", "", "privacy: keys and owners as hashes, to show the screen to others"},
		{commandStats, anywhere, []string{"@"}, "@", "", "every Redis command that was sent: how often, how long"},
		{save, anywhere, []string{"ctrl+s"}, "^S", "", "save the frame as text, with colours, or as SVG"},
		{redraw, anywhere, []string{"ctrl+l"}, "^L", "", "draw the screen again"},
		{suspend, anywhere, []string{"ctrl+z"}, "^Z", "", "suspend; fg resumes"},
		{quit, anywhere, []string{"q", "ctrl+c"}, "q", "quit", "quit; Q leaves the last frame on the terminal"},
		{quitAndLeave, anywhere, []string{"Q"}, "", "", ""},
	}
}

// actionOf returns the action of a key on a page, or noAction.
func actionOf(key string, at pageSet) action {
	for _, b := range bindings() {
		if b.place&at == 0 {
			continue
		}
		for _, k := range b.keys {
			if k == key {
				return b.action
			}
		}
	}
	return noAction
}

// pagesOf lists the pages on which a key works, "" if there are none.
func pagesOf(key string) string {
	var names []string
	for _, at := range allPages() {
		if actionOf(key, at) != noAction {
			names = append(names, at.String())
		}
	}
	return strings.Join(names, ", ")
}
