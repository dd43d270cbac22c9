package formats_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/server"
)

// takeAnew ends a hold and takes the lock anew in one step, as an owner without a
// pause would.
// ARGV: commands that take the lock, each after the number of its words
// Returns what was there, and what is there now.
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

// owner takes one lock again and again, each time as somebody else, and knows
// what became of each hold.
type owner struct {
	rdb    *redis.Client
	sample keyspace.Sample
	ahead  time.Duration // the server's clock, of ours
	moment time.Time     // of the last hold, by the server's clock

	mu     sync.Mutex
	holds  map[string]int // by holder, the number of the hold
	robbed map[int]bool   // ended before the owner ended them
	late   map[int]bool   // may have expired before the owner ended them
}

// next returns commands that take the lock as nobody has before; none if there is
// nobody left.
func (o *owner) next(number int) [][]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range 20 {
		o.moment = o.moment.Add(time.Millisecond) // as far as tokens tell the time
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

// holdOf returns the number of the hold that was seen; false if it is none.
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

// tail is the part of a name of which another name of the same looks can be made:
// the end of a long number, or else of a word, but for what may be a checksum.
var tail = regexp.MustCompile(`^.*[0-9a-f]{3}([0-9a-f]{5})|^.*([0-9A-Za-z]{3})[0-9A-Za-z]|^.*([0-9A-Za-z]{3})`)

// renamed returns a sample with other holders, but for those whose names are
// moments: they change with the clock.
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

// another returns a word of the same looks.
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

// take ends whatever is there, and takes the lock. It returns what was there, and
// what is there now.
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

// run takes the lock until ctx ends, or there is nobody left to take it.
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

// races is what came of breaking one lock again and again.
type races struct {
	done    map[int]bool // holds
	changed int
}

// breakOften looks at the lock and breaks it as it was seen, after a moment, so
// many times, unless the owner ends before, or the lock is hardly ever there.
func breakOften(t *testing.T, o *owner, format string, times int, ended <-chan struct{}) races {
	t.Helper()
	b, all := releaser(o.rdb), races{done: make(map[int]bool)}
	scanner := keyspace.NewScanner(o.rdb, keyspace.ScanOptions{Formats: formats.All(), MinConfidence: keyspace.Possible})
	for looks := 0; len(all.done)+all.changed < times && looks < 100*times; looks++ {
		select {
		case <-ended:
			return all
		default:
		}
		snap, err := scanner.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(snap.Locks, func(l keyspace.Lock) bool { return l.Key == o.sample.Want.Key && l.Format == format })
		if i < 0 {
			continue // it was broken a moment ago
		}
		number, one := o.holdOf(snap.Locks[i])
		if !one {
			continue // read while it changed hands
		}
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		switch _, err := b.ForceRelease(t.Context(), snap.Locks[i]); {
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

// race has an owner and one who breaks its locks meet so many times, and checks
// that what was broken is what the owner lost.
func race(t *testing.T, rdb *redis.Client, format string, s keyspace.Sample, times int) races {
	t.Helper()
	load(t, rdb, []string{"FLUSHALL"})
	o := &owner{rdb: rdb, sample: s, ahead: time.Until(clock(t, rdb)), holds: make(map[string]int), robbed: make(map[int]bool), late: make(map[int]bool)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { stop(); <-ended }()
	go func() {
		defer close(ended)
		if err := o.run(ctx); err != nil {
			t.Error(err)
		}
	}()
	all := breakOften(t, o, format, times, ended)
	stop()
	<-ended
	for number, robbed := range o.robbed {
		if robbed != all.done[number] && !o.late[number] {
			t.Errorf("%s, %s: hold %d was taken away: %v; was broken: %v", format, s.Name, number, robbed, all.done[number])
		}
	}
	return all
}

// One who breaks locks races with owners who take them anew all the time, in every
// format that can be acted on and whose holders can be told apart: what a break
// says it has removed is what it had seen, and nothing else was touched.
//
// Promise P11.
func TestOnlyTheHoldThatWasSeenIsReleased(t *testing.T) {
	rdb := connect(t, server.ForTest(t).Addr())
	times := 8 // of each sample
	if os.Getenv("LOCKTOP_PROOF") != "" {
		times = 120
	}
	done, changed, raced := 0, 0, 0
	for _, f := range formats.All() {
		for _, s := range f.Samples {
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
	if raced < 70 || done < raced || changed < raced {
		t.Errorf("%d broken and %d refused in %d samples: that proves little", done, changed, raced)
	}
}
