package lock

import (
	"testing"
	"time"
)

// Close also finds a hold that the renewer is handling.
func TestCloseFindsAHoldThatTheRenewerHandles(t *testing.T) {
	var r renewer
	r.init()
	now := time.Now()
	h := &hold{base: &base{client: &Client{}}, sent: now, ttl: time.Minute, renewAt: now.Add(time.Second), slot: -1}
	r.add(h)
	if due, _ := r.popDue(now.Add(2 * time.Second)); len(due) != 1 || due[0] != h {
		t.Fatalf("%d are due, want the one", len(due))
	}
	if all := r.all(func(*hold) bool { return true }); len(all) != 1 {
		t.Errorf("Close finds %d holds, want the one", len(all))
	}
	if due, next := r.popDue(now.Add(3 * time.Second)); len(due) != 0 || next > time.Hour {
		t.Errorf("it is due twice; the next look is in %v", next)
	}
	r.update(h)
	if due, _ := r.popDue(now.Add(4 * time.Second)); len(due) != 1 {
		t.Error("it is not due again")
	}
	r.remove(h)
	if all := r.all(func(*hold) bool { return true }); len(all) != 0 {
		t.Errorf("Close finds %d holds, want none", len(all))
	}
}
