package main

// columns and rowsOfTerminal are the size of the terminal, in cells.
const columns, rowsOfTerminal = 104, 32

// shot is an image and the steps to it.
type shot struct {
	name   string // of the file, without extension
	alt    string // what the README says of it
	scene  string // of locktop demo; "" = none
	script string // for sh, in place of the demo: it runs the program $1 with the theme $2
	steps  []step
	shows  []string // words of the image that prove alt
}

// step presses keys, by their tmux names, and waits until the screen matches a
// regular expression. Without keys it only waits. The first step has none, so
// that the program can start. With from, the image has the lines from one that matches from to one that matches to, below a caption.
type step struct {
	keys              []string
	until             string
	caption, from, to string
}

// hangs is a lock without a deadline, whose holder is connected and idle, and a client that polls for it.
const hangs = `
port=27911
redis-server --port $port --save "" >/dev/null 2>&1 & server=$!
trap 'kill $server $holder $poller' EXIT HUP
until redis-cli -p $port PING >/dev/null 2>&1; do sleep 0.1; done
{ echo CLIENT SETNAME worker-3; echo SET lock:orders:4711 worker-3; sleep 600; } | redis-cli -p $port >/dev/null & holder=$!
sleep 1
while sleep 0.3; do redis-cli -p $port SET lock:orders:4711 worker-8 NX PX 60000 >/dev/null; done & poller=$!
"$1" -u redis://127.0.0.1:$port --write --theme "$2"`

// shots lists all images. Each waits until there is some history: several
// locks held for 10 s or more, and a few hundred acquires.
func shots() []shot {
	return []shot{
		{
			name: "story", alt: "A stuck lock in four frames: found, who holds it, released exactly, and the next client works", script: hangs,
			steps: []step{
				{until: `≥1 +≥\d\d`, caption: "1  The queue hangs. One lock has no deadline, and another client waits for it", from: `most waiting`, to: `▌▲`},
				{keys: []string{"Enter"}, until: `connected for`, caption: "2  Who holds it? A connected client that has done nothing since", from: `── findings`, to: `connected for`},
				{keys: []string{"x"}, until: `release it`},
				{keys: []string{"r"}, until: `only if the lock is still`, caption: "3  Release exactly this hold: compared on the server, and logged", from: `── release`, to: `leave it`},
				{keys: []string{"y"}, until: `(?s)holder +worker-8.*acquired +worker-8`, caption: "4  The next client works", from: `time left`, to: `holder +worker-8`},
				{until: `released`, from: `── last 60 s`, to: `holds`},
				{until: `released`, from: `acquired +worker-8`, to: `released +worker-3`},
			},
			shows: []string{"most waiting for lock:orders:4711, because of worker-3", "It is done only if the lock is still as it is shown here", "● acquired worker-8", "○ released worker-3"},
		},
		{
			name: "locks", alt: "The locks, worst first",
			steps: []step{
				{until: `m shows `},
				{keys: []string{"g"}, until: `(?s)(\d\d s +\d+\.\d s.*){4}`},
			},
			shows: []string{"▲ no TTL"},
		},
		{
			name: "lock", alt: "Who held a lock, and who waited",
			steps: []step{
				{until: `orders:4711`},
				{keys: []string{"/"}, until: `\d+ of \d+`},
				{keys: []string{"printer"}, until: `1 of \d+`},
				{keys: []string{"Enter"}, until: `Enter open`},
				{keys: []string{"Enter"}, until: `(?s)● held  printer.*is it stuck.*last 60 s.*blocked .*┄┄┄.*✗ expired`},
			},
			shows: []string{"● held", "waits"},
		},
		{
			name: "contention", alt: "Which locks clients wait for, and whose holds cause it",
			steps: []step{
				{until: `m shows `},
				{until: `(?s)(\d\d s +\d+\.\d s.*){4}`},
				{keys: []string{"o", "o"}, until: `(?s)most waiting for load.*load:.*exact`},
			},
			shows: []string{"most waiting for load", "exact"},
		},
		{
			name: "timeline", alt: "Who held which lock, and when: one lock deletes blindly, and its holds overlap", scene: "blind-delete",
			steps: []step{
				{until: `\d OVERLAPS`},
				{until: `final`},
				{keys: []string{"2"}, until: `free, with waiters`},
				{keys: []string{"+", "+"}, until: `(?s)10 s  ending now.*load:.*!.*orders:4711`},
			},
			shows: []string{"overlap", "client-1"},
		},
		{
			name: "load", alt: "Readers, a writer, and who waits for what: a scene of the load", scene: "readers-writers",
			steps: []step{
				{until: `(?s)● writes.*┄┄┄.*○ waits to read.*  [4-9]\.\d s · client-\d writes`},
			},
			shows: []string{"● writes", "○ waits to read", "writes, alone", "read together", "✓ 0 overlaps"},
		},
		{
			name: "redlock", alt: "A Redlock with two servers down", scene: "redlock-minority",
			steps: []step{
				{until: `4 ✗ down`},
				{keys: []string{"4"}, until: `(?s)2 down.*3/5`},
			},
			shows: []string{"2 down", "3/5"},
		},
		{
			name: "fence", alt: "A holder freezes, another client gets the lock, and the fence refuses the late write: a scene of the load", scene: "freeze-fenced",
			steps: []step{
				{until: `stale write refused 1`},
				{until: `refused, its fencing token`},
			},
			shows: []string{"stale write refused 1", "freezes while holding the lock", "acquires it as well", "refused, its fencing token"},
		},
	}
}
