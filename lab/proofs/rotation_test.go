package proofs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
)

const (
	canary      = "c4nary-f00d!cafe" // begins each password
	rotateEvery = 2 * time.Second
	tokenLives  = 2 * rotateEvery
)

// rotate gives a server a new user with a new password every rotateEvery, until stop. A user is deleted rotateEvery
// after its credentials have expired, which ends its connections. command prints the credentials of the newest user.
func rotate(t *testing.T, rdb server.Client) (command string, end func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	var users []string
	next := func() error {
		user := fmt.Sprintf("locktop-%d", len(users))
		users = append(users, user)
		pass := fmt.Sprintf("%s-%d", canary, len(users))
		if err := servertest.SetUser(context.Background(), rdb, user, "on", ">"+pass, "~*", "&*", "+@all"); err != nil {
			return err
		}
		said, err := json.Marshal(map[string]any{"username": user, "password": pass, "expires_at": time.Now().Add(tokenLives)})
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+".new", said, 0o600); err != nil {
			return err
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
		if old := len(users) - 1 - int((tokenLives+rotateEvery)/rotateEvery); old >= 0 {
			tracks := regexp.MustCompile(` flags=\w*t`)
			for client := range strings.Lines(rdb.ClientList(context.Background()).Val()) {
				check.True(t, !strings.Contains(client, "user="+users[old]+" ") || !tracks.MatchString(client),
					"a connection that tracks changes has expired credentials: %s", client)
			}
			return rdb.Do(context.Background(), "ACL", "DELUSER", users[old]).Err()
		}
		return nil
	}
	check.NoError(t, next())
	ctx, stop := context.WithCancel(t.Context())
	var rotating sync.WaitGroup
	rotating.Go(func() {
		tick := time.NewTicker(rotateEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				check.ErrorIs(t, next(), nil)
			}
		}
	})
	return "cat '" + file + "'", func() { stop(); rotating.Wait() }
}

// The password and its user change every two seconds, and the server ends the connections
// of old users. watch reports each change once and without a warning, and a load loses no
// lease: each hold is longer than the time to live of its credentials.
func TestAPasswordThatRotatesLosesNoEventAndNoLease(t *testing.T) {
	testtier.Long(t, "passwords rotate for seconds")
	t.Parallel()
	rdb := labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{PoolSize: 64})
	command, stop := rotate(t, rdb)
	defer stop()
	seen := watchAsAProgram(t, rdb, "--password-command", command, "--lock", "lock:*")
	o := trafficOf(t)
	// A watch that reads a lock later than dying does not learn the deadline, and takes the end for a release.
	o.workers, o.pause, o.dying, o.patient = 40, 50*time.Millisecond, 2*time.Second, true
	o.lasts = time.Duration(testtier.Size(10, 10, 600)) * time.Second

	load := labtest.Start(t, "load", "-u", "redis://"+servertest.AddrOf(rdb), "--password-command", command, "--json", "-n", "1",
		"--clients", "4", "--keys", "4", "--ttl", "2s", "--hold", "5s", "--think", "100ms", "--duration", o.lasts.String())
	did := churn(t, rdb, seen, o)
	load.Exits(0)
	compareChanges(t, seen, did)
	report := labtest.Decoded[loadReport](t, load.Out.String())
	t.Logf("load: %v", report.Figures)
	check.True(t, report.Figures["acquired.count"] != 0 && report.Figures["lost.count"]+report.Figures["expired.count"] <= 0 && report.LastError == "",
		"%+v", report)
	check.False(t, strings.Contains(load.Out.String()+load.Errors.String(), canary), "the load prints the password")
}
