package witness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

// entriesOf reads a history: "a" means that client a enters for the key k, "A" that its newest hold
// leaves and is confirmed, "A?" that it leaves and is not. "r" … "w" are readers. "ab:" names the
// keys of the next entry, one letter each. "(" and ")" are the begin and the end of a loss.
func entriesOf(history string) []Entry {
	var all []Entry
	newest := map[string]string{}
	keys := []string{"k"}
	for _, word := range strings.Fields(history) {
		if named, ok := strings.CutSuffix(word, ":"); ok {
			keys = strings.Split(named, "")
			continue
		}
		if loss, ok := map[string]Loss{"(": LossBegan, ")": LossEnded}[word]; ok {
			all = append(all, Entry{Loss: loss})
			continue
		}
		id := fmt.Sprint(len(all))
		client := strings.ToLower(word[:1])
		if client == word {
			all = append(all, Entry{ID: id, Client: client, Keys: keys, Shared: client >= "r" && client <= "w"})
			newest[client] = id
			keys = []string{"k"}
			continue
		}
		all = append(all, Entry{ID: id, Left: newest[client]})
		if !strings.HasSuffix(word, "?") {
			all = append(all, Entry{Confirmed: []string{newest[client]}})
		}
	}
	return all
}

func TestHoldsThatCrossAreOverlaps(t *testing.T) {
	for _, c := range []struct {
		history  string
		limit    int
		overlaps int64
	}{
		{"a A b B a A", 1, 0},
		{"a b A B", 1, 1},
		{"a b B A", 1, 1},
		{"a b B A?", 1, 0}, // the lease of a was over
		{"a b B? A", 1, 0},
		{"a b B", 1, 0},         // a has not come back
		{"a b B a A c C", 1, 0}, // a crashed and came back: its first hold is not inside any more
		{"a b c C B A", 1, 2},
		{"a b c C B A?", 1, 1},
		{"a b B A", 2, 0},
		{"a b c C B A", 2, 1},
		{"a b c C B? A", 2, 0},
		{"r s R S", 1, 0},
		{"r a R A", 1, 1},
		{"a r A R", 1, 1},
		{"r s a R S A", 1, 1},
		{"x: a y: b A B", 1, 0},
		{"xy: a yz: b A B", 1, 1},
		{"xy: a xy: b A B", 1, 1}, // once, not for each key
	} {
		j := Judge{Limit: c.limit}
		for _, e := range entriesOf(c.history) {
			j.Add(e)
		}
		counts := j.Counts()
		check.True(t, counts.Overlaps == c.overlaps && len(counts.Examples) == int(c.overlaps),
			"%q with limit %d: %+v, want %d overlaps", c.history, c.limit, counts, c.overlaps)
	}
}

// A hold that has not left proves nothing, also if it is confirmed.
func TestAHoldIsProvenOnlyAfterItHasLeft(t *testing.T) {
	j := Judge{}
	for _, e := range []Entry{
		{ID: "1", Client: "a", Keys: []string{"k"}}, {ID: "2", Client: "b", Keys: []string{"k"}},
		{ID: "3", Left: "2", Confirmed: []string{"1"}}, {ID: "4", Confirmed: []string{"2"}},
	} {
		j.Add(e)
	}
	c := j.Counts()
	check.True(t, c.Proven == 1 && c.Overlaps == 0, "%+v", c)
	j.Add(Entry{ID: "5", Left: "1"})
	j.Add(Entry{ID: "6", Confirmed: []string{"1"}})
	c = j.Counts()
	check.True(t, c.Proven == 2 && c.Overlaps == 1, "after both have left: %+v", c)
}

func TestAJudgeAgreesWithAComparisonOfAllPairs(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		type span struct {
			enter, leave int
			proven       bool
		}
		var spans []*span
		inside := map[string]*span{}
		ids := map[string]string{}
		type loss struct{ began, ended int }
		var losses []loss
		under := 0
		j := Judge{Limit: 1 + int(seed%3)}
		for i := range 60 {
			if seed%2 > 0 && random.IntN(8) == 0 {
				switch {
				case random.IntN(2) == 0:
					if under++; under == 1 {
						losses = append(losses, loss{i, 1000})
					}
					j.Add(Entry{ID: fmt.Sprint(i), Loss: LossBegan})
				default:
					if under--; under == 0 {
						losses[len(losses)-1].ended = i
					}
					under = max(under, 0)
					j.Add(Entry{ID: fmt.Sprint(i), Loss: LossEnded})
				}
				continue
			}
			client := fmt.Sprint(random.IntN(5))
			id := fmt.Sprint(i)
			s := inside[client]
			switch {
			case s == nil:
				s = &span{enter: i, leave: 1000}
				spans, inside[client], ids[client] = append(spans, s), s, id
				j.Add(Entry{ID: id, Client: client, Keys: []string{"k"}})
			default:
				s.leave, s.proven = i, random.IntN(3) > 0
				inside[client] = nil
				j.Add(Entry{ID: id, Left: ids[client]})
				if s.proven {
					j.Add(Entry{Confirmed: []string{ids[client]}})
				}
			}
		}
		var overlaps, excused, proven int64
		for _, s := range spans {
			crossed, intact := 0, 0
			for _, other := range spans {
				if s == other || !other.proven || other.enter > s.enter || s.enter > other.leave {
					continue
				}
				crossed++
				if !slices.ContainsFunc(losses, func(l loss) bool { return l.began < s.enter && l.ended > other.enter }) {
					intact++
				}
			}
			if s.proven {
				proven++
				if crossed >= j.Limit {
					overlaps++
					if intact < j.Limit {
						excused++
					}
				}
			}
		}
		if c := j.Counts(); c.Overlaps != overlaps || c.Excused != excused || c.Proven != proven || c.Holds != int64(len(spans)) {
			t.Fatalf("seed %d: %+v, want %d overlaps, %d excused, %d proven of %d", seed, c, overlaps, excused, proven, len(spans))
		}
		check.Require(t, len(j.open) <= 3*5 && len(j.inside["k"]) <= 5,
			"seed %d: five clients have %d open holds, %d of them inside", seed, len(j.open), len(j.inside["k"]))
	}
}

// A loss excuses the holds that entered while a hold was inside that the loss can have
// ended: one that entered before the end of the loss and had not left at its beginning.
func TestALossExcusesWhatItCanHaveCaused(t *testing.T) {
	for _, c := range []struct {
		history           string
		limit             int
		overlaps, excused int64
	}{
		{"a b A B", 1, 1, 0},
		{"a ( ) b A B", 1, 1, 1},
		{"( a ) b A B", 1, 1, 1},
		{"( a b ) A B", 1, 1, 1},
		{"( ) a b A B", 1, 1, 0},
		{"a A ( ) b c B C", 1, 1, 0},
		{"a b ( ) A B", 1, 1, 0}, // the loss came after b
		{"( ( ) a ) b A B", 1, 1, 1},
		{"( ( ) ) a b A B", 1, 1, 0},
		{"a ( ) b c A B C", 1, 2, 1},   // b entered after the loss, and c while b was inside
		{"a b ( ) c A B C", 2, 1, 1},   // of a and b
		{"a ( ) b c A B C", 2, 1, 1},   // without a, one permit was free
		{"( ) a b c A B C", 2, 1, 0},   // all three entered after the loss
		{"x: a ( ) y: b A B", 1, 0, 0}, // no overlap
		{") a b A B", 1, 1, 0},
	} {
		j := Judge{Limit: c.limit}
		for _, e := range entriesOf(c.history) {
			j.Add(e)
		}
		counts := j.Counts()
		check.True(t, counts.Overlaps == c.overlaps && counts.Excused == c.excused,
			"%q with limit %d: %+v, want %d overlaps, %d excused", c.history, c.limit, counts, c.overlaps, c.excused)
	}
}
