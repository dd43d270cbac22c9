package cli

import (
	"errors"
	"strconv"
	"strings"

	"locktop/keyspace/inspect"
)

// budget is the value of --budget: the share of a server's time that scans may
// use. Zero means the default.
type budget float64

// String returns the value as the flag accepts it.
func (b *budget) String() string {
	switch {
	case *b == 1:
		return "full"
	case *b == 0:
		return strconv.FormatFloat(100*inspect.DefaultShare, 'f', -1, 64) + "%"
	default:
		return strconv.FormatFloat(100*float64(*b), 'f', -1, 64) + "%"
	}
}

// Set parses the value of the flag.
func (b *budget) Set(s string) error {
	if s == "full" {
		*b = 1
		return nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(percent > 0) || percent > 100 {
		return errors.New("not a share")
	}
	*b = budget(percent / 100)
	return nil
}

// Type returns the name of the type for error messages.
func (b *budget) Type() string { return "budget" }

// pace returns a new inspect.Budget with this share.
func (b *budget) pace() *inspect.Budget {
	if *b == 0 {
		return inspect.NewBudget(inspect.DefaultShare)
	}
	return inspect.NewBudget(float64(*b))
}
