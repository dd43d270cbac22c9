package main

// columns and rows are the size of every image, in cells.
const columns, rows = 104, 32

// shot is an image and the steps to it.
type shot struct {
	name   string // of the file, without extension
	scene  string // of locktop demo; "" = none
	steps  []step
	frames int // number of frames of an animation after the last step; 0 means a still image
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
			name: "locks",
			steps: []step{
				{until: `m shows `},
				{keys: []string{"g"}, until: `(?s)(\d\d s +\d+\.\d s.*){4}`},
			},
		},
		{
			name: "lock",
			steps: []step{
				{until: `orders:4711`},
				{keys: []string{"/"}, until: `\d+ of \d+`},
				{keys: []string{"printer"}, until: `1 of \d+`},
				{keys: []string{"Enter"}, until: `Enter open`},
				{keys: []string{"Enter"}, until: `(?s)● held  printer.*is it stuck.*last 60 s.*blocked .*┄┄┄.*✗ expired`},
			},
		},
		{
			name:  "contention",
			scene: "convoy",
			steps: []step{
				{until: `acquired +\d\d`},
				{keys: []string{"1", "o", "o"}, until: `(?s)most blocked: load.*▲ load.*finding +▲ Between two holds`},
			},
		},
		{
			name:  "timeline",
			scene: "blind-delete",
			steps: []step{
				{until: `\d OVERLAPS`},
				{until: `final`},
				{keys: []string{"2"}, until: `free, with waiters`},
				{keys: []string{"+", "+"}, until: `(?s)10 s  ending now.*load:.*!.*orders:4711`},
			},
		},
		{
			name:  "load",
			scene: "blind-delete",
			steps: []step{
				{until: `\d OVERLAPS`},
				{until: `final`},
			},
		},
		{
			name:  "redlock",
			scene: "redlock-minority",
			steps: []step{
				{until: `acquired +\d`},
				{keys: []string{"]", "]", "]", "]", "]", "4"}, until: `(?s)2 down.*(3/5.*){2}`},
			},
		},
		{
			name: "findings",
			steps: []step{
				{until: `orders:4711`},
				{keys: []string{"5"}, until: `what to do`},
			},
		},
		{
			name:  "demo",
			scene: "freeze",
			steps: []step{
				{until: `acquired +\d`},
				{keys: []string{"2", "+", "+"}, until: `(?s)10 s  ending now.*load:.*orders:4711`},
			},
			frames: 24,
		},
	}
}
