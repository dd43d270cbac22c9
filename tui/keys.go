package tui

// action is what a key asks for. Pages answer actions; which key stands for
// which action is said here and nowhere else.
type action uint8

// What keys can ask for.
const (
	noAction action = iota
	quit
	help
	suspend
	nextPage
	previousPage
	openLocks
	openLoad

	up
	down
	pageUp
	pageDown
	first
	last
	search
	sortLeft
	sortRight
	invert
	pause
	wide
	preview
	back

	startStop
	more
	fewer
)

// place is where a key works.
type place uint8

// The places.
const (
	anywhere place = iota
	onLocks
	onLoad
)

func (p place) String() string { return [...]string{"everywhere", "locks", "load"}[p] }

// binding is one line of the key table. Of two keys that belong together, the
// first speaks for both, and the second has no words of its own.
type binding struct {
	action action
	place  place
	keys   []string // as bubbletea names them
	label  string   // what people call the keys
	word   string   // what the footer says; "" keeps it out of there
	help   string   // what the help says
}

// bindings is the table of all keys. The footer and the help are made from it,
// in this order.
func bindings() []binding {
	return []binding{
		{help, anywhere, []string{"?"}, "?", "help", "show or hide this list"},

		{search, onLocks, []string{"/"}, "/", "filter", "filter by key, owner, kind or state: word, !not, ~regexp"},
		{sortLeft, onLocks, []string{"left"}, "← →", "sort", "sort by the next column, left or right"},
		{sortRight, onLocks, []string{"right"}, "", "", ""},
		{invert, onLocks, []string{"i"}, "i", "invert", "turn the order round"},
		{pause, onLocks, []string{" "}, "space", "pause", "hold the picture still; sampling goes on"},
		{preview, onLocks, []string{"v"}, "v", "preview", "show or hide the selected lock below the table"},
		{wide, onLocks, []string{"w"}, "w", "wide", "more columns: format, fence, renewals, node"},
		{up, onLocks, []string{"k", "up"}, "k j ↑ ↓", "", "up and down"},
		{down, onLocks, []string{"j", "down"}, "", "", ""},
		{pageUp, onLocks, []string{"pgup", "ctrl+b"}, "PgUp PgDn", "", "up and down by a page"},
		{pageDown, onLocks, []string{"pgdown", "ctrl+f"}, "", "", ""},
		{first, onLocks, []string{"g", "home"}, "g G", "", "to the first lock, to the last"},
		{last, onLocks, []string{"G", "end"}, "", "", ""},
		{back, onLocks, []string{"esc"}, "Esc", "", "end the pause, then the filter"},

		{startStop, onLoad, []string{"s"}, "s", "start/stop", "start the clients; stop them and release what they hold"},
		{more, onLoad, []string{"+", "="}, "+ -", "clients", "more clients, fewer clients, at once"},
		{fewer, onLoad, []string{"-"}, "", "", ""},

		{openLocks, anywhere, []string{"1"}, "1 3", "", "the locks, the load generator"},
		{openLoad, anywhere, []string{"3"}, "", "", ""},
		{nextPage, anywhere, []string{"tab"}, "Tab", "next page", "the next page; with Shift the page before"},
		{previousPage, anywhere, []string{"shift+tab"}, "", "", ""},
		{suspend, anywhere, []string{"ctrl+z"}, "^Z", "", "to the shell; fg comes back"},
		{quit, anywhere, []string{"q", "ctrl+c"}, "q", "quit", "quit"},
	}
}

// actionOf returns what a key asks for at a place, or noAction.
func actionOf(key string, at place) action {
	for _, b := range bindings() {
		if b.place != anywhere && b.place != at {
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
