package inspect

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
)

// answers returns a read of a string with these replies.
func answers(value string, size int64, left time.Duration) keyRead {
	clock := redis.NewTimeCmd(context.Background())
	clock.SetVal(start)
	return keyRead{
		keyRef: keyRef{name: "lock:a", typ: "string"},
		clock:  clock,
		after:  clock,
		value:  redis.NewStringResult(value, nil),
		size:   redis.NewIntResult(size, nil),
		expiry: redis.NewDurationResult(left, nil),
	}
}

// A key may be created, deleted or changed between the commands that read it.
func TestOnlyAnswersThatFitTogetherAreAnEntry(t *testing.T) {
	for _, c := range []struct {
		name  string
		asked keyRead
		ok    bool
	}{
		{"held", answers("token", 5, time.Second), true},
		{"held for ever", answers("token", 5, -1), true},
		{"empty, but there", answers("", 0, time.Second), true},
		{"never there", answers("", 0, -2), false},
		{"gone in between", answers("token", 5, -2), false},
		{"gone even before its size", answers("token", 0, -2), false},
		{"came in between", answers("", 5, time.Second), false},
		{"became another", answers("token", 9, time.Second), false},
	} {
		e, ok := c.asked.entry()
		check.True(t, ok == c.ok, "%s: taken for an entry: %v", c.name, ok)
		check.True(t, !ok || c.name != "held" || e.Expires.Equal(start.Add(time.Second)), "it expires at %v", e.Expires)
	}
}
