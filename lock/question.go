package lock

import (
	"strconv"
	"time"
)

// question is what nodes are asked in a round, the same of each.
type question struct {
	script *script  // nil = a plain command
	argv   []string // the command as it travels
	// note takes down at the site what came of it, and returns why the answer is
	// not what was hoped for.
	note func(c *copies, s *site, reply any, err error) error
	// instead is asked of a node that answered nil; may be nil.
	instead func() *question
	// after sees to what is left to do when an answer has come, however late. It is
	// called on a goroutine of its own, and only if the site is suspect or the answer
	// not a plain one. Nil = nothing.
	after func(*query)
}

func newQuestion(s *script, keys []string, args ...string) *question {
	argv := make([]string, 0, 3+len(keys)+len(args))
	argv = append(argv, "evalsha", s.sha, strconv.Itoa(len(keys)))
	argv = append(argv, keys...)
	return &question{script: s, argv: append(argv, args...)}
}

// take asks for the lock, with its fencing token if it has one.
func (c *copies) take(ttl time.Duration, fence []string) *question {
	q := newQuestion(mutexAcquire, append([]string{c.key}, fence...), c.token, millis(ttl), "1")
	q.note = noteTake
	return q
}

// bid asks for the lock without a fence as take does, at half the cost to the node
// if it is free there, and by one more round trip if it is not.
func (c *copies) bid(ttl time.Duration) *question {
	return &question{
		argv:    []string{"set", c.key, c.token, "nx", "px", millis(ttl)},
		note:    noteTake,
		instead: func() *question { return c.take(ttl, nil) },
	}
}

func noteTake(c *copies, s *site, reply any, err error) error {
	return s.took(c.key, reply, err, c.minUptime)
}

// keep asks to prolong the copy.
func (c *copies) keep(ttl time.Duration) *question {
	q := newQuestion(mutexExtend, []string{c.key}, c.token, millis(ttl))
	q.note = func(_ *copies, s *site, reply any, err error) error { return s.kept(reply, err) }
	return q
}

// look asks who holds the lock.
func (c *copies) look() *question {
	q := newQuestion(mutexLook, []string{c.key})
	q.note = func(c *copies, s *site, reply any, err error) error { return s.saw(c.key, reply, err, c.minUptime) }
	return q
}

// raise asks to count on from a fencing token.
func (c *copies) raise(fence int64) *question {
	q := newQuestion(redlockRaise, c.fence, strconv.FormatInt(fence, 10))
	q.note = func(_ *copies, _ *site, _ any, err error) error { return err }
	return q
}

// leave gives the copy back.
func (c *copies) leave(channel string) *question {
	q := newQuestion(mutexRelease, []string{c.key}, c.token, channel)
	q.note = func(_ *copies, s *site, _ any, err error) error { return s.left(err) }
	return q
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
