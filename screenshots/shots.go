package main

// The size of every picture, in cells.
const columns, rows = 100, 30

// shot is a picture and the way to it.
type shot struct {
	name  string   // of the file, without its ending
	title string   // of the window
	args  []string // of locktop
	steps []step
}

// step presses keys, as tmux names them, and waits until the screen matches a
// regular expression. No keys: it only waits. The first step must, for the
// program to be there at all.
type step struct {
	keys  []string
	until string
}

// shots is the list of all pictures. Each waits until there is some history to
// show: several locks held for 10 s and more, a few hundred acquisitions.
func shots() []shot {
	return []shot{
		{
			name:  "locks",
			title: "locktop demo",
			args:  []string{"demo"},
			steps: []step{
				{until: `(?s)(\d\d s +\d+\.\d s.*){4}`},
			},
		},
		{
			name:  "load",
			title: "locktop demo",
			args:  []string{"demo"},
			steps: []step{
				{until: `held`},
				{keys: []string{"3"}, until: `acquired +[5-9]\d\d`},
			},
		},
	}
}
