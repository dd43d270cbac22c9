//go:build unix

package main

// confirmed says how the failures were repeated without locktop: the name of a client, the
// name of a test, and what was done and seen.
var confirmed = map[string]map[string]string{}
