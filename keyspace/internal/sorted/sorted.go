// Package sorted works on large sorted slices of which little changes.
package sorted

import "slices"

// Insert returns all with the values of more, both in the order of compare. It compares only what
// it needs to find the places: with 200,000 locks, to read each of them takes 20 ms.
func Insert[T any](all, more []T, compare func(a, b T) int) []T {
	if len(more) == 0 {
		return all
	}
	merged := make([]T, 0, len(all)+len(more))
	for _, v := range more {
		place, _ := slices.BinarySearchFunc(all, v, compare)
		merged = append(append(merged, all[:place]...), v)
		all = all[place:]
	}
	return append(merged, all...)
}
