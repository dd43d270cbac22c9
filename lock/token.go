package lock

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
)

// A token is "<label>~<uuid v7>": the label is for people, the uuid is unique
// per attempt and tells when it was made.

// maxOwner is the longest label, in bytes. Who looks for locks in a keyspace
// tells tokens from other values by their length, too.
const maxOwner = 100

// newToken returns a fresh token for an owner.
func newToken(owner string) (string, error) {
	if err := checkOwner(owner); err != nil {
		return "", fmt.Errorf("lock: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("lock: make a token: %w", err)
	}
	return owner + "~" + id.String(), nil
}

// checkOwner refuses a label that is too long.
func checkOwner(owner string) error {
	if len(owner) > maxOwner {
		return fmt.Errorf("%w: the owner's label has %d bytes; it must be at most %d", ErrArgument, len(owner), maxOwner)
	}
	return nil
}

// tokenOwner returns the label inside a token, and whether the token is one of
// this package's.
func tokenOwner(token string) (string, bool) {
	i := strings.LastIndexByte(token, '~')
	if i < 0 || uuid.Validate(token[i+1:]) != nil {
		return "", false
	}
	return token[:i], true
}

// defaultOwner is host:pid.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// companionKey returns the name of a lock's companion, in the same cluster slot as the
// lock: "key::part" if the key has a {tag}, else "{key}:part". No two keys share a
// name, "a" and "{a}" neither: what stands before the part ends with a colon in the
// first case only.
func companionKey(key, part string) string {
	if hasTag(key) {
		return key + "::" + part
	}
	return "{" + key + "}:" + part
}

// canHaveCompanions reports whether name makes names in the slot of the lock: a key
// without a tag must become one, between braces, as a whole.
func canHaveCompanions(key string) bool {
	return hasTag(key) || key != "" && !strings.Contains(key, "}")
}

// hasTag reports whether a cluster hashes only the part of key between braces:
// between the first "{" and the next "}", if there is anything.
func hasTag(key string) bool {
	_, rest, found := strings.Cut(key, "{")
	return found && strings.IndexByte(rest, '}') > 0
}
