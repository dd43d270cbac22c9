package tui

import (
	"fmt"
	"slices"
	"strings"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// holdStatsBlock draws the hold times of a lock and its free times between two holds, as
// observed since the start.
func (s *state) holdStatsBlock(id keyspace.ID, w int) []string {
	r := s.history.Of(id)
	if len(r.Ended) == 0 && r.Renewed == 0 {
		return nil
	}
	lines := []string{s.ruleOf(w, "since start", s.endCounts(r))}
	if r.HoldTimes.Total > 0 {
		lines = append(lines, s.histogramLine("held", &r.HoldTimes, w))
	}
	if r.HandOffs.Total > 0 {
		lines = append(lines, s.histogramLine("free", &r.HandOffs, w))
	}
	if len(r.Owners) > 0 {
		lines = append(lines, s.item(w, "owners", s.screen.theme.text, s.recentOwners(r.Owners)))
	}
	return lines
}

// endCounts lists how holds ended, the most frequent end first.
func (s *state) endCounts(r keyspace.Record) string {
	kinds := make([]keyspace.EventKind, 0, len(r.Ended))
	for k := range r.Ended {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b keyspace.EventKind) int {
		if r.Ended[a] != r.Ended[b] {
			return r.Ended[b] - r.Ended[a]
		}
		return strings.Compare(string(a), string(b))
	})
	var facts []string
	for _, k := range kinds {
		facts = append(facts, humanize.Count(r.Ended[k])+" "+string(k))
	}
	return s.sentence(facts...)
}

// histogramLine draws a histogram: one column for each power of two, then its percentiles.
func (s *state) histogramLine(label string, h *keyspace.Histogram, w int) string {
	first, last := len(h.Buckets), 0
	top := 0.0
	for i, n := range h.Buckets {
		if n == 0 {
			continue
		}
		first, last = min(first, i), i
		top = max(top, float64(n))
	}
	values := make([]float64, 0, last-first+1)
	for _, n := range h.Buckets[first : last+1] {
		values = append(values, float64(n))
	}
	columns := len(values)
	if s.screen.glyphs.Fine { // a cell shows two values
		columns = (columns + 1) / 2
	}
	l := widget.NewLine(w).Skip(widget.Style{}, margin).Put(s.screen.theme.dim, label).To(widget.Style{}, margin+10)
	l.Put(s.screen.theme.chart, s.screen.glyphs.Spark(values, top, columns)).Skip(widget.Style{}, 2)
	l.Put(s.screen.theme.text, s.screen.glyphs.FitEnd(s.percentiles(h), l.Rest()-1))
	return l.String()
}

// percentiles returns the count, p50, p99 and maximum of a histogram.
func (s *state) percentiles(h *keyspace.Histogram) string {
	return s.sentence(
		humanize.Count(int64(h.Total))+s.screen.glyphs.Times,
		"p50 "+humanize.Duration(h.Quantile(0.5)),
		"p99 "+humanize.Duration(h.Quantile(0.99)),
		"longest "+humanize.Duration(h.Longest),
	)
}

// recentOwners lists the latest owners of a lock with the number of their holds.
func (s *state) recentOwners(owners []keyspace.Owner) string {
	const most = 4
	var names []string
	for _, o := range owners[:min(len(owners), most)] {
		names = append(names, fmt.Sprintf("%s %s%d", s.redactOwner(o.Name), s.screen.glyphs.Times, o.Holds))
	}
	text := strings.Join(names, ", ")
	if n := len(owners) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
