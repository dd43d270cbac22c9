package holds_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// observed returns what the statistics say of a free lock at a time.
func observed(stats *holds.Stats, key string, s float64) keyspace.Observed {
	l := keyspace.Lock{Key: key, Node: "a:1"}
	stats.Annotate(&l, at(s))
	return l.Observed
}

func TestTheShareOfTheChecksThatFoundARequest(t *testing.T) {
	var stats holds.Stats
	for i := range 3600 {
		share := observed(&stats, "k", 0).AskedPercent
		check.True(t, i >= 5 || share == 0, "after %d checks the share is %d %%; that is too few", i, share)
		stats.Checked(keyspace.ID{Key: "k", Node: "a:1"}, 1, max(0, 1-i%4))
	}
	check.Equal(t, observed(&stats, "k", 0).AskedPercent, 25, "the share in percent")
	for range 2400 {
		stats.Checked(keyspace.ID{Key: "k", Node: "b:2"}, 1, 1)
	}
	check.AtLeast(t, observed(&stats, "k", 0).AskedPercent, 90, "the share in percent, if what is long past does not count,")
}

// Of the locks to which nothing happens for long, nothing stays.
func TestATypicalHoldIsTheMedianOfTheLastOnes(t *testing.T) {
	var stats holds.Stats
	now, renews, unseen := 0.0, false, []keyspace.EventKind(nil)
	hold := func(key string, seconds float64, how keyspace.EventKind) {
		l, h := keyspace.Lock{Key: key, Node: "a:1"}, since(fmt.Sprint(now), now)
		began := keyspace.Event{At: at(now), Kind: keyspace.Acquired, Lock: l, Holder: h}
		now += seconds
		events := []keyspace.Event{began, {At: at(now), Kind: how, Lock: l, Holder: h, Possible: unseen}}
		if renews {
			events = slices.Insert(events, 1, keyspace.Event{At: at(now - 0.5), Kind: keyspace.Renewed, Lock: keyspace.Lock{Key: key, Node: "a:1", Holders: []keyspace.Holder{h}}, Holder: h})
		}
		stats.Learn(events)
	}
	for i := range 5 {
		check.Equal(t, observed(&stats, "k", now).MedianHold, 0, "what is typical after %d holds, which are too few", i)
		hold("k", float64(10-i), keyspace.Released)
	}
	hold("k", 100, keyspace.Vanished) // nobody saw when it ended
	check.Equal(t, observed(&stats, "k", now).MedianHold, 8*time.Second, "typical is")
	for range 32 {
		hold("k", 1, keyspace.Expired)
	}
	k := observed(&stats, "k", now)
	check.True(t, k.MedianHold == time.Second && k.ExpiryStreak == 32, "after 32 holds of 1 s, typical is %v", k)
	renews = true
	hold("k", 1, keyspace.Expired)
	check.Equal(t, observed(&stats, "k", now).ExpiryStreak, 0, "a hold whose renewals stopped adds to the holds with a short TTL: they are")
	renews, unseen = false, []keyspace.EventKind{keyspace.Expired, keyspace.Released}
	hold("k", 1, keyspace.Expired)
	check.Equal(t, observed(&stats, "k", now).ExpiryStreak, 0, "a hold that ended while the server could not be read adds to them: they are")
	unseen = nil
	for i := range 20_000 {
		hold(fmt.Sprint(i), 1, keyspace.Released)
		hold([]string{"busy", "other"}[min(1, i%100)], 1, keyspace.Released)
	}
	check.True(t, observed(&stats, "k", now).MedianHold == 0 && observed(&stats, "busy", now).MedianHold != 0, "what is gone is forgotten, and what is busy is not")
}
