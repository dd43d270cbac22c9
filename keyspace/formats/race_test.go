package formats_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// takeAnew ends a hold and acquires the lock again in one step, as an owner
// without a pause does. ARGV are the commands that acquire the lock, each
// preceded by its number of words. It returns the state before and after.
const takeAnew = `
local function everything()
  local keys, all = redis.call('KEYS', '*'), {}
  table.sort(keys)
  for _, key in ipairs(keys) do
    table.insert(all, key)
    table.insert(all, redis.call('DUMP', key))
  end
  return table.concat(all, ' ')
end
local before = everything()
redis.call('FLUSHDB')
local i = 1
while i < #ARGV do
  redis.call(unpack(ARGV, i + 1, i + ARGV[i]))
  i = i + 1 + ARGV[i]
end
return { before, everything() }`

// owner acquires one lock again and again, each time as another holder, and
// records how each hold ended.
type owner struct {
	rdb    server.Client
	sample keyspace.Sample
	ahead  time.Duration // difference between the server's clock and ours
	moment time.Time     // of the last hold, by the server's clock

	mu     sync.Mutex
	holds  map[string]int // number of the hold, by holder
	robbed map[int]bool   // holds that were ended before the owner ended them
	late   map[int]bool   // holds that may have expired before the owner ended them
}

// next returns commands that acquire the lock as a new holder, or none if no holder is left.
func (o *owner) next(number int) [][]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range 20 {
		o.moment = o.moment.Add(time.Millisecond) // for tokens that contain the time
		if now := time.Now().Add(o.ahead); now.After(o.moment) {
			o.moment = now
		}
		s := formats.At(renamed(o.sample), o.moment)
		known := func(h keyspace.Holder) bool { return o.holds[h.ID] > 0 }
		if slices.ContainsFunc(s.Want.Holders, known) {
			continue
		}
		for _, h := range s.Want.Holders {
			o.holds[h.ID] = number
		}
		return s.Commands
	}
	return nil
}

// holdOf returns the number of the hold that was seen, or false if it is not a hold of the owner.
func (o *owner) holdOf(seen keyspace.Lock) (number int, one bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, h := range seen.Holders {
		n := o.holds[h.ID]
		if n == 0 || i > 0 && n != number {
			return 0, false
		}
		number = n
	}
	return number, number > 0
}

// tail matches the part of a name that can be changed without changing its form: the end of a long
// number, otherwise of a word, without a possible checksum.
var tail = regexp.MustCompile(`^.*[0-9a-f]{3}([0-9a-f]{5})|^.*([0-9A-Za-z]{3})[0-9A-Za-z]|^.*([0-9A-Za-z]{3})`)

// renamed returns a sample with other holders, except those whose names are
// times. They change with the clock.
func renamed(s keyspace.Sample) keyspace.Sample {
	var pairs []string
	for _, h := range s.Want.Holders {
		at := slices.DeleteFunc(tail.FindStringSubmatchIndex(h.ID), func(i int) bool { return i < 0 })
		if at != nil && !strings.Contains(h.ID, "{") {
			pairs = append(pairs, h.ID[:at[3]], h.ID[:at[2]]+another(h.ID[at[2]:at[3]]))
		}
	}
	rename := strings.NewReplacer(pairs...)
	commands := make([][]string, len(s.Commands))
	for i, argv := range s.Commands {
		for _, word := range argv {
			commands[i] = append(commands[i], rename.Replace(word))
		}
	}
	s.Commands, s.Want.Holders = commands, slices.Clone(s.Want.Holders)
	for i, h := range s.Want.Holders {
		s.Want.Holders[i].ID = rename.Replace(h.ID)
	}
	return s
}

// another returns a word of the same form.
func another(word string) string {
	letters := []byte(word)
	for i, c := range letters {
		for _, alike := range []string{"0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
			if strings.IndexByte(alike, c) >= 0 {
				letters[i] = alike[rand.IntN(len(alike))]
			}
		}
	}
	return string(letters)
}

// take ends the present hold and acquires the lock. It returns the state before and after.
func (o *owner) take(commands [][]string) (before, now string, err error) {
	var argv []any
	for _, command := range commands {
		argv = append(argv, len(command))
		for _, word := range command {
			argv = append(argv, word)
		}
	}
	states, err := o.rdb.Eval(context.Background(), takeAnew, nil, argv...).StringSlice()
	if err != nil {
		return "", "", fmt.Errorf("take the lock anew: %w", err)
	}
	return states[0], states[1], nil
}

// patience is less than the shortest TTL among the samples.
const patience = 2 * time.Second

// run acquires the lock until ctx ends or no holder is left.
func (o *owner) run(ctx context.Context) error {
	for number, held, since := 0, "", time.Now(); ; number++ {
		var commands [][]string
		if ctx.Err() == nil {
			commands = o.next(number + 1)
		}
		before, now, err := o.take(commands)
		if err != nil {
			return err
		}
		o.mu.Lock()
		o.robbed[number], o.late[number] = before != held, time.Since(since) > patience
		o.mu.Unlock()
		if commands == nil {
			return nil
		}
		held, since = now, time.Now()
		time.Sleep(time.Duration(rand.IntN(6000)) * time.Microsecond)
	}
}

// races holds the results of force-releasing one lock repeatedly.
type races struct {
	done    map[int]bool // numbers of holds
	changed int
}

// breakOften reads the lock and force-releases it as it was seen, after a short time, so many
// times. It stops early if the owner ends or the lock is rarely held.
func breakOften(t *testing.T, o *owner, format string, times int, ended <-chan struct{}) races {
	t.Helper()
	b, all := releaser(o.rdb), races{done: make(map[int]bool)}
	scanner := inspect.NewScanner(o.rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})
	for looks := 0; len(all.done)+all.changed < times && looks < 100*times; looks++ {
		select {
		case <-ended:
			return all
		default:
		}
		snap, err := scanner.Scan(t.Context())
		check.NoError(t, err)
		i := slices.IndexFunc(snap.Locks, func(l *keyspace.Lock) bool { return l.Key == o.sample.Want.Key && l.Format == format })
		if i < 0 {
			continue // it was released just before
		}
		number, one := o.holdOf(*snap.Locks[i])
		if !one {
			continue // read while the holder changed
		}
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		switch _, err := b.Act(t.Context(), keyspace.ForceRelease, *snap.Locks[i], 0); {
		case errors.Is(err, keyspace.ErrChanged):
			all.changed++
		case err != nil:
			t.Fatal(err)
		case all.done[number]:
			t.Errorf("hold %d was broken twice", number)
		default:
			all.done[number] = true
		}
	}
	return all
}

// race runs an owner against a force-releaser so many times, and checks that
// the released holds are those that the owner lost.
func race(t *testing.T, rdb server.Client, format string, s keyspace.Sample, times int) races {
	t.Helper()
	load(t, rdb, []string{"FLUSHALL"})
	o := &owner{rdb: rdb, sample: s, ahead: time.Until(clock(t, rdb)), holds: make(map[string]int), robbed: make(map[int]bool), late: make(map[int]bool)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { stop(); <-ended }()
	go func() {
		defer close(ended)
		check.ErrorIs(t, o.run(ctx), nil)
	}()
	all := breakOften(t, o, format, times, ended)
	stop()
	<-ended
	for number, robbed := range o.robbed {
		check.True(t, robbed == all.done[number] || o.late[number],
			"%s, %s: hold %d was taken away: %v; was broken: %v", format, s.Name, number, robbed, all.done[number])
	}
	return all
}

// Force-releases race with owners that constantly acquire their locks again,
// for every format that has actions and whose holders can be distinguished. The
// hold that a force-release reports as removed is the one it had seen, and
// nothing else was changed. The first tier races with every third format.
//
// Promise P11.
func TestOnlyTheHoldThatWasSeenIsReleased(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	times := testtier.Size(4, 8, 120) // per sample
	done, changed, raced := 0, 0, 0
	for i, f := range everyFormat {
		if !testtier.InLong() && i%3 > 0 {
			continue
		}
		for _, s := range formats.Samples(f.Name) {
			if f.Actions == nil || len(s.Want.Holders) == 0 {
				continue
			}
			all := race(t, rdb, f.Name, s, times)
			done, changed = done+len(all.done), changed+all.changed
			if len(all.done)+all.changed < times {
				t.Logf("%s, %s: %d of %d races", f.Name, s.Name, len(all.done)+all.changed, times)
				continue
			}
			raced++
		}
	}
	t.Logf("%d races in %d samples: %d broken, %d refused", done+changed, raced, done, changed)
	enough := testtier.Size(raced/4, raced, raced) // a slow machine breaks fewer holds, and a quick one is refused less often
	check.True(t, raced >= testtier.Size(20, 70, 70) && done >= enough && changed >= enough,
		"%d broken and %d refused in %d samples: that proves little", done, changed, raced)
}
