package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// voters are servers of a Redlock with what they had last.
type voters []fixed

// read returns the servers after so many seconds, one for each letter, with that token under the key a: "." has none,
// "?" does not answer, and "!" has lost what it had in a restart. Its deadline is a second earlier on each further server.
func (v *voters) read(second int, spelt string) []NamedSource {
	if *v == nil {
		*v = make(voters, len(spelt))
	}
	all := make([]Source, len(spelt))
	for i, c := range strings.Split(spelt, "") {
		now := on(fmt.Sprintf("node%d", i+1), start.Add(time.Duration(second)*time.Second), 30-second-i, "a="+c)
		now.Nodes[0].Scanned = true
		switch {
		case c == "?":
			all[i] = fixed{err: errors.New("i/o timeout")}
			continue
		case c == "!":
			was := (*v)[i].snap.Locks[0]
			now.Events = []keyspace.Event{{At: now.At, Kind: keyspace.Lost, Lock: *was, Holder: was.Holders[0]}}
			fallthrough
		case c == ".":
			now.Locks = nil
		}
		(*v)[i] = fixed{snap: now}
		all[i] = (*v)[i]
	}
	return sourcesOf(all...)
}

// A token of a Redlock holds it from its majority of all servers on, and as long as the servers that are silent
// may keep its majority.
func TestTheEventsOfARedlockAreThoseOfItsMajority(t *testing.T) {
	for name, c := range map[string]struct{ votes, want string }{
		"acquired on all":                       {"..... xxxxx", "|acquired x"},
		"acquired in steps":                     {"..... xx... xxxx.", "||acquired x"},
		"a minority":                            {"..... xx... .....", "||"},
		"two minorities":                        {"..... xx.yy .....", "||"},
		"released":                              {"xxxxx xx... .....", "appeared x|released x|"},
		"a loser after the winner":              {"..... xxxyy ...yy", "|acquired x|released x"},
		"silent servers have the majority":      {"..xxx ..??? ..xxx", "appeared x||"},
		"all but one of its servers are silent": {"xxxxx ????x xxxxx", "appeared x||"},
		"it ended while they were silent":       {"..xxx ..??? .....", "appeared x||gone x"},
		"it changed while they were silent":     {"..xxx ..??? ..yyy", "appeared x||gone x appeared y"},
		"released on those that answer":         {"xxxxx xxx?? ...??", "appeared x||released x"},
		"one of its servers stays away":         {"xxxxx ?xxxx ?....", "appeared x||released x"},
		"begun on silent servers":               {"xx??? xxxxx", "|appeared x"},
		"begun on those that answer":            {"....? xxx.?", "|acquired x"},
		"a restart without need of its vote":    {"xxxxx xxxx! .....", "appeared x||released x"},
		"a restart takes its majority":          {"xxx.. xx!.. xx...", "appeared x||"},
		"and it is released":                    {"xxx.. xx!.. xx... .....", "appeared x|||released x"},
		"and another has it":                    {"xxx.. xx!.. xx... xxyyy", "appeared x|||lost x by y acquired y"},
		"and another has it at once":            {"xxx.. xx!yy xxyyy", "appeared x||lost x by y acquired y"},
		"and one of the other restarts, too":    {"xxx.. xx!.. xxyyy xxy!y xxy.y .....", "appeared x||lost x by y acquired y|||released y"},
		"restarts of a majority":                {"xxx.. !!!..", "appeared x|lost x"},
		"a restart after a time without answer": {"xxx.. xx?.. xx!.. xxyyy", "appeared x|||lost x by y acquired y"},
	} {
		var all []NamedSource
		var servers voters
		m := NewMultiSource(func(context.Context) ([]NamedSource, error) { return all, nil }, MultiOptions{Mode: "redlock", Redlock: true})
		var got []string
		for second, spelt := range strings.Fields(c.votes) {
			all = servers.read(second, spelt)
			var events []string
			s := snapshotOf(t, m)
			if strings.Trim(spelt, ".?") == "" {
				check.Equal(t, len(s.Locks) > 0, strings.Count(spelt, "?") > 2, "%s (%s): it is a lock", name, spelt)
			}
			for _, e := range s.Events {
				text := string(e.Kind) + " " + e.Holder.ID
				if next, taken := e.TakenBy(); taken {
					text += " by " + next.ID
				}
				events = append(events, text)
			}
			got = append(got, strings.Join(events, " "))
		}
		check.Equal(t, strings.Join(got, "|"), c.want, "%s (%s): the events are", name, c.votes)
	}
}
