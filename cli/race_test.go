package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// taker acquires a lock again and again, each time with another token, and
// returns the tokens that other clients removed, as digests.
func taker(ctx context.Context, rdb *redis.Client, key string) (robbed map[string]bool, err error) {
	robbed = make(map[string]bool)
	for n := 0; ctx.Err() == nil; n++ {
		token := fmt.Sprintf("5f0c9a4e-2d3b-4c8a-9e1f-%012x", rand.Uint64N(1<<48))
		if err := rdb.SetArgs(context.Background(), key, token, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err(); err != nil {
			return nil, fmt.Errorf("a lock that nobody else takes is taken: %w", err)
		}
		time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
		mine, err := freeIfMine.Run(context.Background(), rdb, []string{key}, token).Int()
		if err != nil {
			return nil, err
		}
		if mine == 0 {
			sum := sha256.Sum256([]byte(token))
			robbed[hex.EncodeToString(sum[:8])] = true
		}
	}
	return robbed, nil
}

// Many release commands race with clients that constantly acquire their locks
// again. A release removes only the hold that it saw.
//
// Promise P11.
func TestNoLockIsBrokenThatWasNotSeen(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	clients := testtier.Size(6, 12, 200)
	addr := server.ForTest(t).Addr()
	rdb := clientWith(t, redis.Options{Addr: addr, PoolSize: 50})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	robbed := make([]map[string]bool, clients)
	var takers, releasers sync.WaitGroup
	for i := range clients {
		takers.Go(func() {
			var err error
			robbed[i], err = taker(ctx, rdb, fmt.Sprintf("lock:%d", i))
			check.ErrorIs(t, err, nil)
		})
	}
	ends := make(chan int, clients)
	room := make(chan struct{}, 8) // processes at the same time
	for i := range clients {
		releasers.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			err := exec.Command("locktop", "release", fmt.Sprintf("lock:%d", i), "--write", "--yes", "-u", "redis://"+addr).Run()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			} else if err != nil {
				t.Error(err)
			}
			ends <- code
		})
	}
	releasers.Wait()
	stop()
	takers.Wait()
	compareRobbed(t, robbed, ends)
}

// compareRobbed checks that the holds that were removed are those in the audit
// log.
func compareRobbed(t *testing.T, robbed []map[string]bool, ends chan int) {
	t.Helper()
	close(ends)
	codes := make(map[int]int)
	for code := range ends {
		codes[code]++
	}
	lost, foreign := 0, 0
	for _, one := range robbed {
		lost += len(one)
	}
	intents, done := 0, 0
	for _, line := range audited(t) {
		if line.Outcome == "intended" {
			intents++
		}
		if line.Outcome != "done" {
			continue
		}
		done++
		var i int
		check.Must(fmt.Sscanf(line.Key, "lock:%d", &i))(t)
		if _, digest, _ := strings.Cut(line.Holders[0], "sha256:"); !robbed[i][digest] {
			foreign++
		}
	}
	t.Logf("%d intents, %d done, %d holds taken away, exit codes %v", intents, done, lost, codes)
	check.True(t, foreign <= 0 && lost == done && done == codes[exitFine],
		"%d holds were taken away, %d were to be, %d of these never had been", lost, done, foreign)
	other := len(robbed) - codes[exitFine] - codes[exitChanged] - codes[exitNoLock]
	check.True(t, other == 0, "%d ended in another way: %v", other, codes)
}
