package render

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

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
		rows = append(rows, []string{
			cell(l.Key), string(l.Kind), l.Format, l.Confidence.String(), string(modeOf(*l)), string(l.State(p.At)),
			cell(HolderIDs(*l)), strconv.Itoa(l.Depth()), strconv.Itoa(l.WaiterCount()),
			strconv.FormatInt(TTL(l.Expires, p.At), 10), strconv.FormatInt(l.Fence, 10),
			cell(l.Node), strconv.Itoa(l.DB), findingIDs(p.Findings[l.ID()]), heldCell(*l, p.At),
		})
	}
	return out.WriteAll(rows) // WriteAll flushes
}

// heldCell returns how long the holder has held l, or "" if that is not known.
func heldCell(l keyspace.Lock, at time.Time) string {
	age := l.Age(at)
	if age.Duration == 0 {
		return ""
	}
	return strconv.FormatInt(age.Milliseconds(), 10)
}

// HolderIDs returns the IDs of the holders of l, separated by spaces.
func HolderIDs(l keyspace.Lock) string {
	var ids []string
	for _, h := range l.Holders {
		ids = append(ids, h.ID)
	}
	return strings.Join(ids, " ")
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
