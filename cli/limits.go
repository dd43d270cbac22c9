package cli

import (
	"errors"
	"math"
	"strings"
	"time"

	"locktop/keyspace/inspect"
)

// limits is the value of --overdue: the ages at which holds are overdue.
type limits []inspect.Overdue

// notEver is longer than any hold.
const notEver time.Duration = math.MaxInt64

// String returns the value as the flag accepts it.
func (l *limits) String() string {
	var all []string
	for _, o := range *l {
		after := o.After.String()
		if o.After == notEver {
			after = "never"
		}
		all = append(all, o.Glob+"="+after)
	}
	return strings.Join(all, " ")
}

// Set adds a limit. The glob may contain =, the duration may not.
func (l *limits) Set(s string) error {
	glob, text := "*", s
	if i := strings.LastIndexByte(s, '='); i >= 0 {
		glob, text = s[:i], s[i+1:]
	}
	after, err := time.ParseDuration(text)
	if text == "never" {
		after, err = notEver, nil
	}
	if err != nil || after <= 0 || glob == "" {
		return errors.New("not a limit like jobs:*=2h")
	}
	*l = append(*l, inspect.Overdue{Glob: glob, After: after})
	return nil
}

// Type returns the name of the type for error messages.
func (l *limits) Type() string { return "limit" }
