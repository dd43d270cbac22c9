package tui

// cursor is the selection in a list, and the part of the list in sight. It
// stays on its entry, not on its line: an entry is known by a key.
type cursor[K comparable] struct {
	chosen K
	any    bool // something was chosen
	row    int  // where it is, or was
	top    int  // the first line in sight
}

// follow finds the chosen entry in a list of n that has changed. If it is gone,
// the one in its place is chosen.
func (c *cursor[K]) follow(n int, key func(int) K) {
	if c.any && c.row < n && key(c.row) == c.chosen {
		return
	}
	for i := 0; c.any && i < n; i++ {
		if key(i) == c.chosen {
			c.row = i
			return
		}
	}
	c.any = false
	c.choose(min(c.row, n-1), n, key)
}

// choose selects a row, the nearest one there is.
func (c *cursor[K]) choose(row, n int, key func(int) K) {
	c.row = max(0, min(row, n-1))
	if n > 0 {
		c.chosen, c.any = key(c.row), true
	}
}

// travel moves the selection as an action asks, with h lines in sight, and
// reports whether that was what the action asked for.
func (c *cursor[K]) travel(a action, n, h int, key func(int) K) bool {
	steps, ok := stride(a, n, h)
	if ok {
		c.choose(c.row+steps, n, key)
		c.reveal(n, h)
	}
	return ok
}

// stride is how far an action moves in a list of n, of which h are in sight.
func stride(a action, n, h int) (steps int, ok bool) {
	switch a {
	case up:
		return -1, true
	case down:
		return 1, true
	case pageUp:
		return -max(1, h), true
	case pageDown:
		return max(1, h), true
	case halfUp:
		return -max(1, h/2), true
	case halfDown:
		return max(1, h/2), true
	case first:
		return -n, true
	case last:
		return n, true
	}
	return 0, false
}

// reveal scrolls so that the selection is among the h lines in sight.
func (c *cursor[K]) reveal(n, h int) {
	c.top = max(0, min(c.top, n-h))
	if c.row < c.top {
		c.top = c.row
	}
	if h > 0 && c.row >= c.top+h {
		c.top = c.row - h + 1
	}
}
