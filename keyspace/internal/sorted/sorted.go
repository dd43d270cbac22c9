// Package sorted works on large sorted slices of which little changes.
package sorted

import "slices"

// Insert returns all with the values of more, both in the order of compare. It may change all. It
// compares only what it needs to find the places: with 200,000 locks, to read each takes 20 ms.
func Insert[T any](all, more []T, compare func(a, b T) int) []T {
	n := len(all)
	all = slices.Grow(all, len(more))[:n+len(more)]
	for i, v := range slices.Backward(more) {
		place, _ := slices.BinarySearchFunc(all[:n], v, compare)
		copy(all[place+i+1:], all[place:n])
		all[place+i] = v
		n = place
	}
	return all
}
