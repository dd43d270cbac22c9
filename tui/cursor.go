package tui

// cursor is the selection in a list, and the scroll position. The selection follows its entry,
// identified by a key, when the list changes.
type cursor[K comparable] struct {
	chosen K
	any    bool // chosen is valid
	row    int  // current or last row of the entry
	top    int  // first visible line
}

// follow finds the selected entry in a changed list of n entries. If the entry is gone, the
// entry in its row becomes the selection.
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

// choose selects a row, or the nearest existing one.
func (c *cursor[K]) choose(row, n int, key func(int) K) {
	c.row = max(0, min(row, n-1))
	if n > 0 {
		c.chosen, c.any = key(c.row), true
	}
}

// travel moves the selection by a navigation action, with h visible lines. It returns false for
// other actions.
func (c *cursor[K]) travel(a action, n, h int, key func(int) K) bool {
	steps, ok := stride(a, n, h)
	if ok {
		c.choose(c.row+steps, n, key)
		c.reveal(n, h)
	}
	return ok
}

// stride returns the distance that an action moves in a list of n entries, of which h are
// visible.
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

// reveal scrolls until the selection is among the h visible lines.
func (c *cursor[K]) reveal(n, h int) {
	c.top = max(0, min(c.top, n-h))
	if c.row < c.top {
		c.top = c.row
	}
	if h > 0 && c.row >= c.top+h {
		c.top = c.row - h + 1
	}
}
