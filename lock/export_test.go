package lock

// Scatter has the lock of [Client.All] treat its keys as if each were in a slot of its own.
func Scatter(l Locker) Locker {
	if a, ours := l.(*all); ours {
		a.protocol.group(func(key string) string { return key })
	}
	return l
}
