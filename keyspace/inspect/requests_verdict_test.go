package inspect

import (
	"fmt"
	"testing"
	"time"

	"locktop/internal/check"
)

// A touch in the second of an own read proves nothing, nor does one shortly after it.
func TestOnlyATouchInALaterSecondIsOneOfAnotherClient(t *testing.T) {
	for _, c := range []struct {
		own, touched, now int64
		asked, covered    bool
	}{
		{100_000, 100, 100, false, false}, // the own read
		{100_000, 101, 101, true, false},
		{100_000, 101, 102, true, true},
		{100_000, 100, 102, false, true},  // no client has asked
		{100_699, 101, 102, true, true},   // touchGrace ends in second 100
		{100_700, 101, 102, false, false}, // and here in second 101
		{100_700, 102, 102, true, false},
		{100_000, 99, 102, false, true}, // a clock that was set back
		{100_000, 101, 401, true, true}, // maxAskedAge
		{100_000, 101, 402, false, true},
	} {
		asked, covered := verdict(c.own, c.touched, c.now)
		check.Equal(t, [2]bool{asked, covered}, [2]bool{c.asked, c.covered},
			"own read at %d ms, touched in second %d, now %d", c.own, c.touched, c.now)
	}
}

func TestTheClockOfIdleTimesIsBehindThatOfTheServer(t *testing.T) {
	now := time.Unix(1_795_535_445, 900_000_000)
	for behind, fits := range map[int64]bool{0: true, 1: true, 59: true, 60: false, -1: false} {
		second := now.Unix() - behind
		got, ok := lruSecond(fmt.Sprintf("# Server\r\nhz:10\r\nlru_clock:%d\r\nport:1\r\n", second%(1<<lruBits)), now)
		check.True(t, ok == fits && (!ok || got == second), "a clock that is %d s behind shows second %d, %v", behind, got-now.Unix(), ok)
	}
	_, ok := lruSecond("", now)
	check.False(t, ok, "without a clock it is known")
}
