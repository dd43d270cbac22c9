package tui

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestTheLockPageListsTheOtherLocksOfItsHolder(t *testing.T) {
	pay := keyspace.Holder{ID: "pay-5~0f6a", Label: "pay-5", Count: 1}
	ship := keyspace.Holder{ID: "8743c9c0:7", Count: 1}
	w := testConfig()
	locks := []keyspace.Lock{
		{Key: "lock:a", Format: "locktop", Holders: []keyspace.Holder{pay}, Waiters: []keyspace.Waiter{{ID: ship.ID}}},
		{Key: "lock:b", Format: "redisson", Holders: []keyspace.Holder{ship}, Waiters: []keyspace.Waiter{{ID: "pay-5~77aa"}, {ID: "pay-55~1"}}},
		{Key: "lock:c", Format: "locktop", Holders: []keyspace.Holder{{ID: "pay-5~beef", Label: "pay-5", Count: 1}}},
		{Key: "lock:d", Format: "locktop", Holders: []keyspace.Holder{{ID: "pay-55~1", Label: "pay-55", Count: 1}}},
		{Key: "lock:e", Format: "locktop", Holders: []keyspace.Holder{{ID: "solo", Count: 1}}, Waiters: []keyspace.Waiter{{ID: "pay-55~2"}}},
	}
	w.Source = &fakeServer{locks: forAnHour(locks)}
	drive(t, w, func(d *driver) {
		d.size(100, 50).wait(2*tickInterval).press("/").enter("lock:a").press("enter", "enter")
		d.want("pay-5 also holds lock:c", "pay-5 waits for lock:b, which 8743c9c0:7 holds", "Possible deadlock between processes: 8743c9c0:7 waits for").wantNot("lock:e") // pay-55 waits for it
		d.press("esc", "esc", "/").enter("lock:c").press("enter", "enter")
		d.want("pay-5 also holds lock:a", "pay-5 waits for lock:b").wantNot("eadlock")
		d.press("esc", "esc", "/").enter("lock:d").press("enter", "enter")
		d.want("pay-55 waits for lock:b").wantNot("also holds")
	})
}

// forAnHour returns the locks as mutexes with a deadline.
func forAnHour(locks []keyspace.Lock) []keyspace.Lock {
	for i := range locks {
		locks[i].Kind, locks[i].Expires = keyspace.Mutex, time.Now().Add(time.Hour)
	}
	return locks
}

// A filter for an owner shows the locks that it holds and those that it waits for.
func TestTheFilterFindsLocksByTheirWaiters(t *testing.T) {
	w := testConfig()
	holder := func(name string) []keyspace.Holder { return []keyspace.Holder{{ID: name, Count: 1}} }
	locks := []keyspace.Lock{
		{Key: "a", Holders: holder("pay-5")},
		{Key: "b", Holders: holder("ship-1"), Waiters: []keyspace.Waiter{{ID: "pay-5"}}},
		{Key: "c", Holders: holder("ship-1")},
		{Key: "d", Holders: holder("pay-5")},
	}
	w.Source = &fakeServer{locks: forAnHour(locks)}
	drive(t, w, func(d *driver) {
		d.press("/").enter("pay-5").want("3 of 4").press("enter", "esc")
		d.press(":").enter("sort owner").press("enter").wantOrder("pay-5", "pay-5", "ship-1", "ship-1")
	})
}

// o groups the locks by owner. The heading of an owner says what it holds, with others,
// too, and what it waits for. Owners of one lock share a heading, and so do free locks.
func TestLocksAreGroupedByOwner(t *testing.T) {
	w := testConfig()
	holder := func(names ...string) (all []keyspace.Holder) {
		for _, name := range names {
			all = append(all, keyspace.Holder{ID: name + "~0f", Label: name, Count: 1})
		}
		return all
	}
	waiter := func(ids ...string) (all []keyspace.Waiter) {
		for _, id := range ids {
			all = append(all, keyspace.Waiter{ID: id})
		}
		return all
	}
	locks := []keyspace.Lock{
		{Key: "k1", Holders: holder("pay-5"), Waiters: waiter("ship-1~aa")},
		{Key: "k2", Holders: holder("solo")},
		{Key: "k3", Holders: holder("ship-1", "pay-5")},
		{Key: "k4", Holders: holder("pay-5")},
		{Key: "k5", Holders: holder("ship-1"), Waiters: waiter("pay-5~77", "pay-5~78", "nobody~1")},
		{Key: "k6", Holders: holder("other")},
		{Key: "k7", Holders: []keyspace.Holder{{ID: "late", Count: 1}}, Waiters: waiter("solo-2~1")}, // its library has no labels
		{Key: "k8"},
		{Key: "k9", Holders: holder("next"), Waiters: waiter("late")},
	}
	v := &fakeServer{locks: forAnHour(locks)}
	w.Source = v
	drive(t, w, func(d *driver) {
		d.size(120, 35).press("o")
		d.want("pay-5  holds 3 locks, k3 with others · possible deadlock with ship-1 · waits for k5, which ship-1 holds")
		line := strings.TrimSpace(d.line("pay-5  holds"))
		check.True(t, strings.HasSuffix(line, "waits for k5, which ship-1 holds"), "two waiters of one owner are named twice: %s", line)
		d.want("ship-1  holds 2 locks · possible deadlock with pay-5", "waits for k1, which pay-5 holds")
		d.want("next  holds 1 lock · blocks 1 owner", "late  holds 1 lock · waits for k9, which next holds", "2 owners with one lock each", "1 lock without a holder")
		d.wantOrder("pay-5  holds", "k1", "k4", "ship-1  holds", "k5", "k3", "next  holds", "k9", "late  holds", "k7", "2 owners", "k2", "k6", "1 lock without", "k8")
		d.want("sorted by owner, then worst first")

		d.wantLine("▌", "k1")
		for _, key := range []string{"k4", "k5", "k3", "k9", "k7", "k2", "k6", "k8", "k8"} {
			d.press("j").wantLine("▌", key)
		}
		for _, key := range []string{"k6", "k2", "k7", "k9", "k3", "k5", "k4", "k1", "k1"} {
			d.press("k").wantLine("▌", key)
		}
		d.press("G").wantLine("▌", "k8").press("g").wantLine("▌", "k1")
		above, _, _ := strings.Cut(d.screen(), "ship-1  holds")
		d.deliver(tea.MouseMsg{X: 9, Y: strings.Count(above, "\n"), Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
		d.settle().wantLine("▌", "k5").press("enter").want("newest first", "k5").press("esc")

		d.press("/").enter("k7").want("1 of 9").press("enter").want("late  holds 1 lock · waits for k9").wantNot("pay-5  holds").press("esc")
		for h := 12; h > 5; h-- { // the heading above the selection is in sight, too
			d.size(59, h).press("G", "g").want("pay-5  holds")
		}
		d.size(120, 35).press("o").wantNot("  holds ", "grouped")
		d.press(":").enter("group owner").press("enter").want("ship-1  holds 2 locks")
		d.press(":").enter("group nothing").press("enter").want("group: one of: owner, class, none")
		d.press(":").enter("group none").press("enter").wantNot("ship-1  holds")
	})
}

func TestHeadingsOfOwnersKeepPrivacy(t *testing.T) {
	w := testConfig()
	locks := []keyspace.Lock{
		{Key: "secret-1", Holders: []keyspace.Holder{{ID: "alice", Count: 1}}},
		{Key: "secret-2", Holders: []keyspace.Holder{{ID: "bob", Count: 1}}, Waiters: []keyspace.Waiter{{ID: "alice"}}},
		{Key: "secret-3", Holders: []keyspace.Holder{{ID: "carol", Count: 1}}, Waiters: []keyspace.Waiter{{ID: "bob"}}},
	}
	locks[0].Waiters = []keyspace.Waiter{{ID: "carol"}}
	w.Source = &fakeServer{locks: forAnHour(locks)}
	drive(t, w, func(d *driver) {
		d.size(120, 40).press("o").want("alice  holds 1 lock · possible deadlock with bob · waits for secret-2, which bob holds", "alice waits for secret-2 of bob")
		d.press("p").want("holds 1 lock · possible deadlock with owner-", "· waits for ").wantNot("alice", "secret", "bob", "carol")
	})
}

func TestALongListOfKeysIsCut(t *testing.T) {
	var keys []string
	for i := range 9 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	check.Equal(t, listed(keys, namesListed, len(keys)), "k0, k1, k2, k3, k4, k5 and 3 more")
}

// The view model brings the ownerships of the lock that the last frame shows, so that the
// next frame does not wait for the search. It searches for no lock that no frame shows.
func TestAViewModelBringsTheOwnershipsThatTheFrameShows(t *testing.T) {
	a := appWith(3)
	source := sourceFunc(func(context.Context) (keyspace.Snapshot, error) { return snapshotOf(3), nil })
	next := func() *ownerships { return fetchSnapshot(t.Context(), source, a.live, 0)().(snapshotMsg).model.owners }
	check.Require(t, a.View() != "" && a.live.owners.drawn, "the frame does not show the lock")
	found := next()
	check.True(t, found != nil && found.lock == a.live.owners.lock,
		"it has the ownerships %+v, want those of %v", found, a.live.owners.lock)
	a.live.owners.drawn = false
	if found := next(); found != nil {
		t.Errorf("no frame shows %v, but it was searched", found.lock)
	}
}

func TestOwnershipsOfChangesAreThoseOfAllLocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	locks := make(map[int]*keyspace.Lock)
	var before *viewModel
	kept := 0
	for step := range 3000 {
		for range random.IntN(3) {
			i := random.IntN(12)
			if locks[i] = nil; random.IntN(4) > 0 {
				locks[i] = &keyspace.Lock{Key: fmt.Sprintf("lock:%02d", i), Kind: keyspace.Semaphore, Fence: int64(step)}
				for range random.IntN(3) {
					name := fmt.Sprint("owner-", random.IntN(9))
					locks[i].Holders = append(locks[i].Holders, keyspace.Holder{ID: fmt.Sprint(name, "~", step), Label: name, Count: 1})
				}
			}
		}
		snap := keyspace.Snapshot{At: after(time.Duration(step) * time.Millisecond)}
		for i := range 12 {
			if locks[i] != nil {
				snap.Locks = append(snap.Locks, locks[i])
			}
		}
		model := newViewModel(snap, snap.At, before)
		l, known := model.lock(keyspace.ID{Key: "lock:00"})
		if !known {
			before = model
			continue
		}
		var old *ownerships
		if before != nil {
			old = before.owners
		}
		model.owners = model.searchOwnerships(&l, old)
		want := model.searchOwnerships(&l, nil)
		for i := range want.holds {
			got := slices.Clone(model.owners.holds[i])
			byKey := func(a, b *keyspace.Lock) int { return strings.Compare(a.Key, b.Key) }
			slices.SortFunc(got, byKey)
			slices.SortFunc(want.holds[i], byKey)
			check.Require(t, slices.Equal(got, want.holds[i]), "step %d: %s holds %v, want %v", step, want.names[i], got, want.holds[i])
			if len(got) > 0 && old != nil && i < len(old.holds) && len(old.holds[i]) > 0 && &model.owners.holds[i][0] == &old.holds[i][0] {
				kept++
			}
		}
		before = model
	}
	check.True(t, kept >= 100, "only %d times they were taken over", kept)
}
