package render

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// CSV prints a header and one lock per row. Several holders share a cell,
// separated by spaces.
func CSV(w io.Writer, p View) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"key", "kind", "format", "confidence", "mode", "state", "holders", "depth",
		"waiter_count", "ttl_ms", "fence", "node", "db", "findings", "held_ms"}}
	for _, l := range p.Locks {
		j := LockOf(*l, p.At, nil)
		rows = append(rows, []string{
			cell(l.Key), string(j.Kind), j.Format, j.Confidence, string(j.Mode), string(j.State), cell(strings.Join(Each(l.Holders, func(h keyspace.Holder) string { return h.ID }), " ")), strconv.Itoa(l.Depth()),
			known(j.WaiterCount), strconv.FormatInt(j.TTLMS, 10), strings.TrimPrefix(strconv.FormatInt(j.Fence, 10), "0"),
			cell(l.Node), strconv.Itoa(l.DB), findingIDs(p.Findings[l.ID()]), known(j.HeldMS),
		})
	}
	return out.WriteAll(rows) // WriteAll flushes
}

// known returns a number, or an empty cell if it is not known.
func known[N int | int64](n *N) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

// cell makes text from Redis safe in a spreadsheet: visible characters only, and
// no formula. It puts a ' before a cell that begins like a formula or with a '.
func cell(s string) string {
	s = widget.Plain(s)
	if s != "" && strings.ContainsRune("=+-@\t'", rune(s[0])) {
		return "'" + s
	}
	return s
}
