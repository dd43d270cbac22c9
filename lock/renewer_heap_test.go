package lock

import (
	"testing"
	"time"

	"locktop/internal/check"
)

// Close also finds a hold that the renewer is handling.
func TestCloseFindsAHoldThatTheRenewerHandles(t *testing.T) {
	var r renewer
	r.init()
	now := time.Now()
	h := &hold{base: &base{client: &Client{}}, sent: now, ttl: time.Minute, renewAt: now.Add(time.Second), slot: -1}
	r.add(h)
	due, _ := r.popDue(now.Add(2 * time.Second))
	check.Require(t, len(due) == 1 && due[0] == h, "%d are due, want the one", len(due))
	check.Equal(t, len(r.all(func(*hold) bool { return true })), 1, "holds that Close finds")
	if due, next := r.popDue(now.Add(3 * time.Second)); len(due) != 0 || next > time.Hour {
		t.Errorf("it is due twice; the next look is in %v", next)
	}
	r.update(h)
	if due, _ := r.popDue(now.Add(4 * time.Second)); len(due) != 1 {
		t.Error("it is not due again")
	}
	r.remove(h)
	check.Equal(t, len(r.all(func(*hold) bool { return true })), 0, "holds that Close finds")
}
