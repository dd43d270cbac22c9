package main

// columns and rows are the size of every image, in cells.
const columns, rows = 104, 32

// shot is an image and the steps to it.
type shot struct {
	name   string // of the file, without extension
	alt    string // what the README says of it
	scene  string // of locktop demo; "" = none
	steps  []step
	frames int      // number of frames of an animation after the last step; 0 means a still image
	shows  []string // words of the image, or of the last frame, that prove alt
}

// step presses keys, by their tmux names, and waits until the screen matches a
// regular expression. Without keys it only waits. The first step has none, so
// that the program can start.
type step struct {
	keys  []string
	until string
}

// shots lists all images. Each waits until there is some history: several
// locks held for 10 s or more, and a few hundred acquires.
func shots() []shot {
	return []shot{
		{
			name: "locks", alt: "The locks, worst first",
			steps: []step{
				{until: `m shows `},
				{keys: []string{"g"}, until: `(?s)(\d\d s +\d+\.\d s.*){4}`},
			},
			shows: []string{"▲ stuck"},
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
			name: "contention", alt: "Which locks clients wait for, and whose holds cause it", scene: "convoy",
			steps: []step{
				{until: `look for: hand-off p90 \d\d\d`},
				{keys: []string{"1", "o", "o"}, until: `(?s)most blocked: load.*▲ load.*finding +▲ Between two holds`},
			},
			shows: []string{"most blocked: load", "▲ Between two holds"},
		},
		{
			name: "timeline", alt: "Who held which lock, and when", scene: "blind-delete",
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
			name: "findings",
			steps: []step{
				{until: `orders:4711`},
				{keys: []string{"5"}, until: `what to do`},
			},
		},
		{
			name: "demo", alt: "A holder freezes, another client gets the lock, and the fence refuses the late write: a scene of the demo", scene: "freeze-fenced",
			steps: []step{
				{until: `look for: stale write refused`},
			},
			frames: 24,
			shows:  []string{"stale write refused 1", "freezes while holding the lock", "acquires it as well", "refused, its fencing token"},
		},
	}
}
