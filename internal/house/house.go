// Package house holds the tests of the tree itself: the allowed imports, and the
// page that lists the tests of each promise.
package house
