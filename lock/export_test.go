package lock

// Scatter has the All treat its keys as if each were in a slot of its own.
func (a *All) Scatter() *All {
	a.protocol.group(func(key string) string { return key })
	return a
}
