package witness

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
)

// entriesOf reads a history: "a" means that client a enters for the key k, "A" that its newest hold
// leaves and is confirmed, "A?" and "A!" that it only leaves or only is confirmed. "r" … "w" are readers. "ab:" names the
// keys of the next entry, one letter each. "(" and ")" are the begin and the end of a loss.
func entriesOf(history string) []*Entry {
	var all []*Entry
	newest := map[string]string{}
	keys := []string{"k"}
	for _, word := range strings.Fields(history) {
		id, client := fmt.Sprint(len(all)), strings.ToLower(word[:1])
		switch {
		case strings.HasSuffix(word, ":"):
			keys = strings.Split(word[:len(word)-1], "")
		case word == "(":
			all = append(all, &Entry{Loss: LossBegan})
		case word == ")":
			all = append(all, &Entry{Loss: LossEnded})
		case client == word:
			all = append(all, &Entry{ID: id, Client: int(client[0] - 'a' + 1), Keys: keys, Shared: client >= "r" && client <= "w"})
			newest[client], keys = id, []string{"k"}
		default:
			if !strings.HasSuffix(word, "!") {
				all = append(all, &Entry{ID: id, Left: newest[client]})
			}
			if !strings.HasSuffix(word, "?") {
				all = append(all, &Entry{Confirmed: []string{newest[client]}})
			}
		}
	}
	return all
}

// judging returns a witness that is fed by hand, of locks that admit limit clients.
func judging(limit int) *Witness {
	w := Join(nil, "x")
	w.history.Limit = limit
	return w
}

// A loss excuses the holds that entered while a hold was inside that the loss can have
// ended: one that entered before the end of the loss and had not left at its beginning.
func TestHoldsThatCrossAreOverlaps(t *testing.T) {
	for _, c := range []struct {
		history           string
		limit             int
		overlaps, excused int64
	}{
		{"a A b B a A", 1, 0, 0},
		{"a b A B", 1, 1, 0},
		{"a b B A", 1, 1, 0},
		{"a b B A?", 1, 0, 0}, // the lease of a was over
		{"a b B? A", 1, 0, 0},
		{"a b B", 1, 0, 0},    // a has not come back
		{"a b A! B", 1, 0, 0}, // a is confirmed, and has not left
		{"a b A! B A", 1, 1, 0},
		{"a b A A! B", 2, 0, 0},    // a is one hold, confirmed twice
		{"a b B a A c C", 1, 0, 0}, // a crashed and came back: its first hold is not inside any more
		{"a b c C B A", 1, 2, 0},
		{"a b B A", 2, 0, 0},
		{"a b c C B A", 2, 1, 0},
		{"a b c C B? A", 2, 0, 0},
		{"r s R S", 1, 0, 0},
		{"r a R A", 1, 1, 0},
		{"a r A R", 1, 1, 0},
		{"r s a R S A", 1, 1, 0},
		{"x: a y: b A B", 1, 0, 0},
		{"xy: a yz: b A B", 1, 1, 0},
		{"xy: a xy: b A B", 1, 1, 0}, // once, not for each key
		{"a ( ) b A B", 1, 1, 1},
		{"( a ) b A B", 1, 1, 1},
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
		{"xy: a ( x: c y: b ) A B C", 1, 2, 2},
		{"y: b ( ) x: a xy: c A B C", 1, 1, 0}, // excused by y only
		{") a ( b A B", 1, 1, 1},
		{"( ( ) a b A B", 1, 1, 1},
	} {
		w := judging(c.limit)
		for _, e := range entriesOf(c.history) {
			w.take(e)
		}
		r := w.Results()
		check.True(t, r.Overlaps == c.overlaps && r.Excused == c.excused && len(r.Examples) == int(c.overlaps),
			"%q with limit %d: %+v, want %d overlaps, %d excused", c.history, c.limit, r, c.overlaps, c.excused)
	}
	w := judging(1)
	for _, e := range entriesOf("r R s t b u S T B U") {
		w.take(e)
	}
	check.DeepEqual(t, w.Results().Examples[0].Others, []string{"client-19", "client-20"}, "all that b crosses")
}

func TestAWitnessAgreesWithAComparisonOfAllPairs(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		type span struct {
			id           string
			enter, leave int
			proven       bool
		}
		var spans []*span
		inside := map[int]*span{}
		var losses [][2]int
		limit := 1 + int(seed%3)
		w := judging(limit)
		for i := range 60 {
			if n := len(losses); seed%2 > 0 && random.IntN(8) == 0 {
				if n > 0 && losses[n-1][1] == 1000 {
					losses[n-1][1] = i
					w.take(&Entry{Loss: LossEnded})
				} else {
					losses = append(losses, [2]int{i, 1000})
					w.take(&Entry{Loss: LossBegan})
				}
				continue
			}
			client := 1 + random.IntN(5)
			if s := inside[client]; s != nil {
				s.leave, s.proven = i, random.IntN(3) > 0
				inside[client] = nil
				w.take(&Entry{Left: s.id})
				if s.proven {
					w.take(&Entry{Confirmed: []string{s.id}})
				}
				continue
			}
			s := &span{id: fmt.Sprint(i), enter: i, leave: 1000}
			spans, inside[client] = append(spans, s), s
			w.take(&Entry{ID: s.id, Client: client, Keys: []string{"k"}})
		}
		var want Counts
		for _, s := range spans {
			crossed, intact := 0, 0
			for _, other := range spans {
				if s == other || !other.proven || other.enter > s.enter || s.enter > other.leave {
					continue
				}
				crossed++
				if !slices.ContainsFunc(losses, func(l [2]int) bool { return l[0] < s.enter && l[1] > other.enter }) {
					intact++
				}
			}
			want.Holds++
			if s.proven {
				want.Proven++
			}
			if s.proven && crossed >= limit {
				want.Overlaps++
				if intact < limit {
					want.Excused++
				}
			}
		}
		got := w.Results().Counts
		got.Examples = nil
		check.Require(t, reflect.DeepEqual(got, want), "seed %d: %+v, want %+v", seed, got, want)
		check.Require(t, len(w.open) <= 2*5, "seed %d: five clients have %d open holds", seed, len(w.open))
	}
}
