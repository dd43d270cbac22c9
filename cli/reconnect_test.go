package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

func TestTheScreenTurnsToOtherLocks(t *testing.T) {
	testtier.Long(t, "it runs the program in a terminal")
	t.Parallel()
	srv := server.ForTest(t)
	for db, key := range []string{"lock:zero", "lock:one"} {
		rdb := clientWith(t, redis.Options{Addr: srv.Addr(), DB: db})
		check.NoError(t, rdb.Set(t.Context(), key, "0b9f2c7e-3d4a-4c1b-9b0a-7d8d3f2b5c1e", time.Hour).Err())
		check.NoError(t, rdb.Set(t.Context(), "mutex:"+key, "1b9f2c7e-3d4a-4c1b-9b0a-7d8d3f2b5c1e", time.Hour).Err())
	}
	lacks := func(text string) func(string) bool {
		return func(screen string) bool {
			return strings.Contains(screen, "locks  ") && !strings.Contains(screen, text)
		}
	}
	term := openTerminal(t, 160, 45, "-u", "redis://"+srv.Addr(), "--write")
	term.want("lock:zero", "mutex:lock:zero").press(":").enter("db 1").press("Enter")
	term.want("lock:one", srv.Addr()+"/1").wait("nothing of database 0", lacks("lock:zero"))
	term.press(":").enter("match mutex:*").press("Enter").want("1 lock ", "mutex:lock:one")
	term.press("x").press("r").want("will still believe").press("y").want("released mutex:lock:one")

	one := clientWith(t, redis.Options{Addr: srv.Addr(), DB: 1})
	n, err := one.Exists(context.Background(), "mutex:lock:one").Result()
	check.True(t, n == 0 && err == nil, "%d locks are left, %v", n, err)
	term.press(":").enter("db all").press("Enter").want("acts on the locks of one database")
	term.press(":").enter("match *").press("Enter").want("lock:one")
}
