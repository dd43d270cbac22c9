package formats

import "locktop/keyspace"

// bySetNX is SET key token NX PX.
var bySetNX = keyspace.Attempt{Command: "set", Token: 1, Option: "nx"}

// stringAttempts are the shapes for a lock that is one string: SET NX, SETNX, or a script with
// the token and a TTL. A script with the token alone is a release.
func stringAttempts() []keyspace.Attempt {
	return []keyspace.Attempt{bySetNX, {Command: "setnx", Token: 1}, byScript(0, 1)}
}

// byScript is a script whose ARGV has the token at an index, and positive numbers at others.
func byScript(token int, numbers ...int) keyspace.Attempt {
	return keyspace.Attempt{Command: keyspace.AnyScript, Token: token, Numbers: numbers}
}

// attempts returns shapes, for a literal.
func attempts(shapes ...keyspace.Attempt) []keyspace.Attempt { return shapes }
