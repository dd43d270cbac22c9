package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// incomplete returns the exitError for an incomplete snapshot. The error names what
// is missing and the servers that answered.
func incomplete(snap keyspace.Snapshot) *exitError {
	text := "incomplete: " + strings.Join(snap.Problems, "; ")
	if up := answering(snap.Nodes); len(snap.Nodes) > 1 && len(up) > 0 {
		text += "; seen are " + strings.Join(up, ", ")
	}
	return &exitError{code: exitFailure, err: errors.New(text)}
}

// answering returns the addresses of the servers that answered.
func answering(nodes []keyspace.Node) (up []string) {
	for _, n := range nodes {
		if n.Up {
			up = append(up, n.Addr)
		}
	}
	return up
}

// missing names in one line the servers that do not answer; "" if all do.
func missing(nodes []keyspace.Node) string {
	var all []string
	for _, n := range nodes {
		if !n.Up {
			all = append(all, fmt.Sprintf("%s cannot be looked at: %s", n.Addr, n.Error))
		}
	}
	return strings.Join(all, "; ")
}

// unseen returns the exitError for a scan without any result.
func unseen(err error) *exitError {
	code := exitFailure
	if cutOff(err) {
		code = exitNoConnect
	}
	return &exitError{code: code, err: err}
}

// cutOff reports whether err means that no server could be reached, as opposed to a
// server that rejected a command.
func cutOff(err error) bool {
	if all, ok := errors.AsType[inspect.NoAnswerError](err); ok {
		return !slices.ContainsFunc(all, func(one error) bool { return !cutOff(one) })
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
