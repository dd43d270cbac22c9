package cli

import (
	"errors"
	"strconv"
)

// database is the value of --db: a number, or all of them.
type database struct {
	number int
	all    bool
}

// String returns the value as it is written.
func (d *database) String() string {
	if d.all {
		return "all"
	}
	return strconv.Itoa(d.number)
}

// Set reads the value.
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

// Type names the value in errors.
func (d *database) Type() string { return "database" }
