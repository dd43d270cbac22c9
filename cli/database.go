package cli

import (
	"errors"
	"strconv"
)

// database is the value of --db: a number, or "all".
type database struct {
	number int
	all    bool
}

// String returns the value as the flag accepts it.
func (d *database) String() string {
	if d.all {
		return "all"
	}
	return strconv.Itoa(d.number)
}

// Set parses the value of the flag.
func (d *database) Set(s string) error {
	if s == "all" {
		*d = database{all: true}
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return errors.New("neither a number nor all")
	}
	*d = database{number: n}
	return nil
}

// Type returns the name of the type for error messages.
func (d *database) Type() string { return "database" }
