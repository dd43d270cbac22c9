package lock

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
)

// A token is "<label>~<uuid v7>". The label is for people. The uuid is unique per
// attempt and contains the time of its creation.

// maxOwner is the longest label, in bytes. Package keyspace also recognizes tokens by
// their length.
const maxOwner = 100

// newToken returns a new token for an owner. The first character of the UUID's fourth group
// tells observers whether it is that of a waiter for a fair lock.
func newToken(owner string, fair bool) (string, error) {
	if err := checkOwner(owner); err != nil {
		return "", fmt.Errorf("lock: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("lock: make a token: %w", err)
	}
	if id[8] |= 0xb0; fair {
		id[8] &= 0x8f
	}
	return owner + "~" + id.String(), nil
}

// newProcessToken returns a new token that tells in which process its owner waits: its
// last 12 characters are those of core.id.
func (c *core) newProcessToken(owner string, fair bool) (string, error) {
	token, err := newToken(owner, fair)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(token, processOf(token)) + processOf(c.id), nil
}

// processOf returns the last 12 characters of an id, a token, or the name of a process.
func processOf(id string) string { return id[len(id)-12:] }

// checkOwner returns an error if the label is too long.
func checkOwner(owner string) error {
	if len(owner) > maxOwner {
		return fmt.Errorf("%w: the owner's label has %d bytes; it must be at most %d", ErrArgument, len(owner), maxOwner)
	}
	return nil
}

// tokenOwner returns the label of a token or of the name of a process, and whether this
// package made it.
func tokenOwner(token string) (string, bool) {
	i := strings.LastIndexByte(token, '~')
	if i < 0 || uuid.Validate(token[i+1:]) != nil && uuid.Validate(uuid.Nil.String()[:24]+token[i+1:]) != nil {
		return "", false
	}
	return token[:i], true
}

// defaultOwner returns host:pid.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// companionKey returns the name of a further key of a lock, in the same cluster slot:
// "key::part" if key has a {tag}, else "{key}:part". The names are unique, also for
// the keys "a" and "{a}": only in the first form a colon stands before ":part".
func companionKey(key, part string) string {
	if hasTag(key) {
		return key + "::" + part
	}
	return "{" + key + "}:" + part
}

// canHaveCompanions reports whether companionKey returns names in the slot of the
// lock. A key without a tag must work as a tag itself.
func canHaveCompanions(key string) bool {
	return hasTag(key) || key != "" && !strings.Contains(key, "}")
}

// hasTag reports whether a cluster hashes only a part of key.
func hasTag(key string) bool { return slotTag(key) != key }

// slotTag returns the part of a key that decides in which slot a cluster stores it: the
// part between the first "{" and the next "}", unless it is empty, else the whole key.
func slotTag(key string) string {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}
