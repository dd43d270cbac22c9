package cli

import (
	"errors"
	"strconv"
	"strings"

	"locktop/keyspace"
)

// budget is the value of --budget: the share of a server's time that looking
// through its keys may take. Zero is the default.
type budget float64

// String returns the value as it is written.
func (b *budget) String() string {
	switch {
	case *b == 1:
		return "full"
	case *b == 0:
		return strconv.FormatFloat(100*keyspace.DefaultShare, 'f', -1, 64) + "%"
	default:
		return strconv.FormatFloat(100*float64(*b), 'f', -1, 64) + "%"
	}
}

// Set reads the value.
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

// Type names the value in errors.
func (b *budget) Type() string { return "budget" }

// pace returns a new pace of that budget.
func (b *budget) pace() *keyspace.Budget {
	if *b == 0 {
		return keyspace.NewBudget(keyspace.DefaultShare)
	}
	return keyspace.NewBudget(float64(*b))
}
