package keyspace

import (
	"fmt"
	"strings"

	"locktop/internal/humanize"
)

// Inversion is a cycle of locks that owners acquire in different orders. The owners can deadlock,
// also if they never did.
type Inversion struct {
	Steps   []Step // at least two: the second lock of each is the first one of the next, and that of the last one the first one of the first
	Certain bool   // each owner of the examples is one thread
}

// Step is an order in which owners acquire two locks: the second one during a hold of the first.
type Step struct {
	First, Second string // two classes, see [ClassOf], or two keys of one class
	Count         int    // number of times
	Owner         string // of the first time that was seen, as [Holder.Name]
	Locks         [2]ID  // of that time
}

// Order returns the two locks in their order.
func (s *Step) Order() string { return s.First + " then " + s.Second }

// Problem returns what kind of inversion it is.
func (i Inversion) Problem() Problem {
	p := Problem{"possible-lock-order", Info, finding, "processes acquire locks in different orders, maybe in several threads",
		"Look whether one thread acquires both locks. If so, let all clients acquire them in one order, for example by name, or both at once."}
	if i.Certain {
		p.ID, p.Severity, p.Meaning = "lock-order", Warning, "threads acquire locks in different orders, and can deadlock"
	}
	return p
}

// Text describes the inversion in two sentences.
func (i Inversion) Text() string {
	orders, owners := make([]string, len(i.Steps)), make([]string, len(i.Steps))
	for n, s := range i.Steps {
		orders[n] = fmt.Sprintf("%s (%s)", s.Order(), humanize.Plural(s.Count, "time"))
		owners[n] = s.Owner
	}
	who, so := "Threads", "they can deadlock"
	if !i.Certain {
		who, so = "Processes", "if one thread of each does so, they can deadlock"
	}
	return fmt.Sprintf("%s acquire %s: %s. First seen of %s.", who, strings.Join(orders, ", "), so, strings.Join(owners, ", "))
}

// Finding returns the inversion as a finding of the lock that is acquired first.
func (i Inversion) Finding() Finding {
	return Finding{Problem: i.Problem(), Lock: i.Steps[0].Locks[0], Text: i.Text()}
}

// IsThread reports whether an owner is one thread, as Redisson and its likes store it: a UUID and a number.
func IsThread(owner string) bool {
	client, thread, _ := strings.Cut(owner, ":")
	return isUUID(client) && thread != "" && digits(thread) == thread
}
