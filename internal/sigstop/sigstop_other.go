//go:build !linux

package sigstop

// Await does nothing: no portable interface shows that a process has stopped.
func Await(pid int) error { return nil }

// AwaitGroup does nothing, as Await.
func AwaitGroup(group int) error { return nil }
