package inspect

import (
	"errors"
	"testing"
	"time"

	"locktop/keyspace"
)

// After a server was lost, the connections seen on it do not count for the
// server that answers next.
func TestNobodyIsMissedWhoWasSeenBeforeTheServerWasLost(t *testing.T) {
	now := time.UnixMilli(1_763_683_200_000)
	l := keyspace.Lock{Key: "a", Holders: []keyspace.Holder{{ID: "1", Label: "worker-3", Count: 1}}}
	present, absent := map[string]bool{"worker-3": true}, map[string]bool{"other": true}
	for _, lost := range []bool{false, true} {
		f := &Watcher{scanner: &Scanner{}}
		came := make(map[holderKey]bool)
		f.clients.annotate(l, present, came, now)
		f.clients.seenConnected = came
		if lost {
			f.onError(errors.New("the network is down"))
		}
		marked, _ := f.clients.annotate(l, absent, make(map[holderKey]bool), now)
		if missed := !marked.Holders[0].Left.IsZero(); missed == lost {
			t.Errorf("the server was lost: %v, and the holder is missed: %v", lost, missed)
		}
	}
}
