package inspect

import (
	"testing"

	"locktop/keyspace"
)

// With 100,000 locks, a second copy would take 30 MB.
func TestALockSetSharesItsLocksWithSnapshots(t *testing.T) {
	set := make(lockSet)
	set.add([]detection{{lock: keyspace.Lock{Key: "b"}}, {lock: keyspace.Lock{Key: "a"}, readInfo: readInfo{typ: "hash"}}})
	locks := set.locks()
	if len(locks) != 2 || set["a"].lock != &locks[0] || set["b"].lock != &locks[1] {
		t.Fatalf("%v is not made of %v", set, locks)
	}
	changed := locks[0]
	changed.Fence = 7
	set.put(detection{lock: changed})
	if d, _ := set.get("a"); d.lock.Fence != 7 || locks[0].Fence != 0 {
		t.Errorf("a snapshot has changed, or the set has not: %v, %v", d.lock, locks[0])
	}
	if d, ok := set.get("c"); ok || d.lock.Key != "" {
		t.Errorf("there is no c: %v", d)
	}
}
