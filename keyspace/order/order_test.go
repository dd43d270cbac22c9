package order

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

const thread1, thread2 = "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7"

// events reads a story: owner, + acquires, ? is found with, = renews, - releases, r reads, * has a permit of, and the key,
// one step per 10 ms. The owners n and f have no token of their own.
func events(story string) (all []keyspace.Event) {
	at := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	for word := range strings.FieldsSeq(story) {
		owner, kind, key := word[:1], word[1], word[2:]
		at = at.Add(10 * time.Millisecond)
		id := map[string]string{"1": thread1, "2": thread2, "n": "17", "f": "held", "p": "web-1:77~" + fmt.Sprint(len(all)), "q": "web-2:78~" + fmt.Sprint(len(all))}[owner]
		id = cmp.Or(id, thread1[:37]+owner)
		h := keyspace.Holder{ID: id, Expires: at.Add(time.Second)}
		if label, _, ours := strings.Cut(id, "~"); ours {
			h.Label = label
		}
		e := keyspace.Event{At: at, Lock: keyspace.Lock{Key: key, Node: owner, Kind: keyspace.Mutex}, Holder: h, Kind: keyspace.Acquired}
		e.Lock.Unchecked = owner == "f"
		switch kind {
		case '*':
			e.Lock.Kind = keyspace.Semaphore
		case '=':
			e.Kind = keyspace.Renewed
		case '?':
			e.Kind = keyspace.Discovered
		case 'r':
			e.Holder.Mode = keyspace.Read
		case '-':
			e.Kind = keyspace.Released
			for _, was := range all { // a hold ends with the token with which it began
				if was.Holder.Name() == h.Name() && was.Lock.Key == key {
					e.Holder = was.Holder
				}
			}
		}
		all = append(all, e)
	}
	return all
}

func TestAnInversionIsSeenWithoutADeadlock(t *testing.T) {
	const one, other = " 1+cart:1 1+stock:5 1-stock:5 1-cart:1", " 2+stock:9 2+cart:2 2-cart:2 2-stock:9"
	p, q := strings.ReplaceAll(one, " 1", " p"), strings.ReplaceAll(other, " 2", " q")
	for _, c := range []struct {
		name, story string
		want        string // "" = none
	}{
		{"one order", one + one + strings.ReplaceAll(one, "1+", "2+"), ""},
		{"eight owners", eight(one + " 1+stock:1 1-stock:1" + one), ""},
		{"eight owners, the last one inverts", eight(one) + " 8+stock:9 8+cart:2 8-cart:2 8-stock:9", "warning"},
		{"both orders", one + one + other, "warning: Threads acquire stock:* then cart:* (1 time), cart:* then stock:* (2 times): they can deadlock. First seen of " + thread2 + ", " + thread1 + "."},
		{"hand over hand", " 1+cart:1 1+stock:5 1-cart:1 1-stock:5" + other, "warning"},
		{"both ends of a transfer", " 1+account:1 1+account:2 1-account:2 1-account:1 2+account:2 2+account:1 2-account:1 2-account:2", "warning: Threads acquire account:2 then account:1"},
		{"keys of one class in one order", " 1+account:1 1+account:2 1-account:2 1-account:1 2+account:2 2+account:3 2-account:2 2-account:3", ""},
		{"three classes", one + " 2+stock:1 2+mail:1 2-mail:1 2-stock:1 1+mail:1 1+cart:1 1-cart:1 1-mail:1", "warning: Threads acquire mail:* then cart:* (1 time), cart:* then stock:*"},
		{"one after the other", " 1+cart:1 1-cart:1 1+stock:5 1-stock:5 2+stock:9 2-stock:9 2+cart:2 2-cart:2", ""},
		{"tokens that several clients share", strings.NewReplacer(" 1", " n", " 2", " n").Replace(strings.Repeat(one+other, 3)), ""},
		{"flags", strings.NewReplacer(" 1", " f", " 2", " f").Replace(strings.Repeat(one+other, 3)), ""},
		{"permits", strings.ReplaceAll(one, "+stock", "*stock") + strings.ReplaceAll(other, "+stock", "*stock"), ""},
		{"a third lock is only read", " 1rgate" + one + " 1-gate 2rgate" + other + " 2-gate", "warning"},
		{"a hold that is renewed and lasts", " 1+cart:1" + strings.Repeat(" 2+a 2-a", 45) + " 1=cart:1" + strings.Repeat(" 2+a 2-a", 40) + " 1+stock:5 1-stock:5" + strings.Repeat(" 1+m 1-m", maxSession) + other, "warning"},
		{"threads after a process", p + one + other, "warning"},
		{"five classes", " 1+a 1+b 1-b 1-a 1+b 1+c 1-c 1-b 1+c 1+d 1-d 1-c 1+d 1+e 1-e 1-d 1+e 1+a 1-a 1-e", ""},
		{"processes, too seldom", strings.Repeat(p, 2) + strings.Repeat(q, 3), ""},
		{"processes with several threads", strings.Repeat(p+q, 3) + " p+cart:1 p+stock:5 p-cart:1 p-stock:5", ""},
		{"processes", strings.Repeat(p+q, 3), "info: Processes acquire stock:* then cart:* (3 times), cart:* then stock:* (3 times): if one thread of each does so, they can deadlock. First seen of web-2:78, web-1:77."},
		{"a third lock is always held", " 1+gate" + one + " 1-gate 2+gate" + other + " 2-gate", ""},
		{"a third lock was found held", " 1?gate" + one + " 1-gate 2+gate" + other + " 2-gate", ""},
		{"a third lock is held sometimes", " 1+gate" + one + " 1-gate" + one + " 2+gate" + other + " 2-gate", "warning"},
		{"readers", " 1rcart:1 1rstock:5 1-stock:5 1-cart:1 2rstock:9 2rcart:2 2-cart:2 2-stock:9", ""},
		{"a reader and a writer", " 1rcart:1 1+stock:5 1-stock:5 1-cart:1 2+stock:9 2+cart:2 2-cart:2 2-stock:9", "warning"},
		{"a begin that nobody saw", " 1?cart:1 1+stock:5 1-stock:5 1-cart:1" + other, ""},
		{"an end that nobody saw", " 1+cart:1" + strings.Repeat(" 2+a 2-a", 60) + " 1+stock:5 1-stock:5" + other, ""},
		{"a process with many locks", crowd() + other, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := new(Graph)
			for _, e := range events(c.story) { // in whatever parts they come
				g.Learn([]keyspace.Event{e}, 0)
			}
			var got []string
			for _, f := range keyspace.ServerFindings(keyspace.Snapshot{Inversions: g.Inversions()}) {
				if strings.HasSuffix(f.ID, "lock-order") {
					got = append(got, f.Severity.String()+": "+f.Text)
				}
			}
			check.True(t, len(got) == min(1, len(c.want)) && strings.HasPrefix(strings.Join(got, "\n"), c.want), "got %q, want %q", got, c.want)
		})
	}
}

// eight returns the story of owner 1 for each of eight.
func eight(story string) (all string) {
	for n := range 8 {
		all += strings.ReplaceAll(story, " 1", fmt.Sprint(" ", n+1))
	}
	return all
}

// crowd holds more locks at the same time than a thread does.
func crowd() (story string) {
	for i := range 2 * maxSession {
		story += fmt.Sprintf(" 1+cart:%d", i)
	}
	return story + " 1+stock:5 1-stock:5 1-cart:63 1+mail"
}

func TestASnoozedOrderIsNoFinding(t *testing.T) {
	for snoozed, want := range map[string]int{"stock:* then cart:*": 0, "cart:* then stock:*": 0, "cart:* then mail:*": 1} {
		g := &Graph{Snoozed: []string{snoozed}}
		g.Learn(events("1+cart:1 1+stock:5 1-stock:5 1-cart:1 2+stock:9 2+cart:2 2-cart:2 2-stock:9"+strings.Repeat(" 1+cart:1 1+stock:5 1-stock:5 1-cart:1", 2)), 0)
		check.Equal(t, len(g.Inversions()), want, "inversions without %s", snoozed)
		all := g.Orders()
		check.True(t, len(all) == 2 && all[0].Order() == "cart:* then stock:*" && all[0].Count == 3 && all[1].Owner == thread2, "the orders are %+v", all)
	}
}

// An order counts only if it is larger than the errors of its times.
func TestAnOrderThatMayHaveBeenTheOtherOneIsNone(t *testing.T) {
	for late, want := range map[time.Duration]int{4 * time.Millisecond: 1, 5 * time.Millisecond: 0} {
		g := new(Graph)
		g.Learn(events("1+cart:1 1+stock:5 1-stock:5 1-cart:1 2+stock:9 2+cart:2 2-cart:2 2-stock:9"), late)
		check.Equal(t, len(g.Inversions()), want, "inversions of begins 10 ms apart that are read up to %v late", late)
		g = new(Graph)
		g.Learn(events("1+cart:1 1+a 1+stock:5 1-cart:1 1-stock:5 1-a 2+stock:9 2+a 2+cart:2 2-stock:9 2-cart:2 2-a"), late)
		check.Equal(t, min(1, len(g.Inversions())), want, "the first hold ends 10 ms after the second begins, read up to %v late", late)
		g = new(Graph)
		g.Learn(events(strings.Repeat(" p+cart:1 p?a p-a p+stock:5 p?a p-a p-cart:1 p-stock:5 q+stock:9 q?a q-a q+cart:2 q?a q-a q-cart:2 q-stock:9", 3)), late)
		check.Equal(t, len(g.Inversions()), 1-want, "inversions of a process whose first hold ends 10 ms before the second, read up to %v late", late)
	}
	found := events("1+cart:1 1+stock:5 1-stock:5 1-cart:1 2+stock:9 2+cart:2 2-cart:2 2-stock:9")
	found[1].Holder.Late = 20 * time.Millisecond
	g := new(Graph)
	g.Learn(found, 0)
	check.Equal(t, len(g.Inversions()), 0, "inversions with a hold that a scan found 20 ms later")
}

func TestAGraphIsBounded(t *testing.T) {
	g := new(Graph)
	word := func(n int) string { return strings.Map(func(r rune) rune { return r + 'k' - '0' }, fmt.Sprint(n)) } // without digits
	for n := range maxEdges + 500 {
		all := events("1+" + word(n) + " 1+a 1-a 1-" + word(n))
		for i := range all {
			all[i].At = all[i].At.Add(time.Duration(n) * time.Second)
		}
		g.Learn(all, 0)
	}
	check.Between(t, len(g.edges), maxEdges*9/10, maxEdges, "edges")
	for n := range maxCycles + 5 {
		g.Learn(events(fmt.Sprintf("1+%[1]s 1+b 1-b 1-%[1]s 2+b 2+%[1]s 2-%[1]s 2-b", "z"+word(n))), 0)
	}
	check.AtMost(t, len(g.cycles), maxCycles, "cycles")
	for n := range 2 * maxOwners {
		e := events("1+lock")[0]
		e.Holder.ID, e.Lock.Key = fmt.Sprint("token", n), fmt.Sprint("lock:", n)
		e.At = e.At.Add(24*time.Hour + time.Duration(n)*time.Millisecond)
		e.Holder.Expires = e.At.Add(time.Second)
		g.Learn([]keyspace.Event{e}, 0)
	}
	check.Between(t, len(g.owners), 1, maxOwners, "owners")
	check.True(t, g.owners[fmt.Sprint("token", 2*maxOwners-1)] != nil, "owners whose ends were missed leave no place for others")
}
