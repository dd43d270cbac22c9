package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

const (
	rotateEvery = 2 * time.Second
	tokenLives  = 2 * rotateEvery
)

// trackingClient matches a line of CLIENT LIST about a connection with client tracking.
var trackingClient = regexp.MustCompile(` flags=\w*t`)

// rotate gives a server a new user with a new password every rotateEvery, until stop. A
// user is deleted rotateEvery after its credentials have expired, which ends its
// connections. command prints the credentials of the newest user.
func rotate(t *testing.T, rdb *redis.Client) (command string, stop func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	var users []string
	next := func() error {
		user := fmt.Sprintf("locktop-%d", len(users))
		users = append(users, user)
		pass := fmt.Sprintf("%s-%d", canary, len(users))
		if err := server.SetUser(context.Background(), rdb, user, "on", ">"+pass, "~*", "&*", "+@all"); err != nil {
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
			for client := range strings.Lines(rdb.ClientList(context.Background()).Val()) {
				check.True(t, !strings.Contains(client, "user="+users[old]+" ") || !trackingClient.MatchString(client),
					"a connection that tracks changes has expired credentials: %s", client)
			}
			return rdb.Do(context.Background(), "ACL", "DELUSER", users[old]).Err()
		}
		return nil
	}
	check.NoError(t, next())
	return "cat '" + file + "'", repeat(t, rotateEvery, func(context.Context) {
		check.ErrorIs(t, next(), nil)
	})
}

// The password and its user change every two seconds, and the server ends the connections
// of old users. watch reports each change once and without a warning, and a load loses no
// lease: each hold is longer than the time to live of its credentials.
func TestAPasswordThatRotatesLosesNoEventAndNoLease(t *testing.T) {
	testtier.Long(t, "passwords rotate for seconds")
	t.Parallel()
	rdb := clientWith(t, redis.Options{Addr: server.ForTest(t).Addr(), PoolSize: 64})
	command, stop := rotate(t, rdb)
	defer stop()
	seen := watchAsAProgram(t, rdb, "--password-command", command, "--lock", "lock:*")
	o := trafficOf(t)
	// A watch that reads a lock later than dying does not learn the deadline, and takes the
	// end for a release.
	o.workers, o.pause, o.dying, o.patient = 40, 50*time.Millisecond, 2*time.Second, true
	o.lasts = time.Duration(testtier.Size(10, 10, 600)) * time.Second

	load := spawn(t, "load", "-u", "redis://"+rdb.Options().Addr, "--password-command", command, "--json", "-n", "1",
		"--clients", "4", "--keys", "4", "--ttl", "2s", "--hold", "5s", "--think", "100ms", "--duration", o.lasts.String())
	did := churn(t, rdb, seen, o)
	load.exits(exitFine)
	compareChanges(t, seen, did)
	report := decoded[loadReport](t, load.out.String())
	t.Logf("load: %v", report.Counts)
	check.True(t, report.Counts["acquired"] != 0 && report.Counts["lost"]+report.Counts["expired"] <= 0 && report.LastError == "",
		"%+v", report)
	places := leaked(map[string]string{"stdout": load.out.String(), "stderr": load.errs.String()})
	check.True(t, len(places) == 0, "the password is in %v", places)
}

func TestAPasswordFileWorksOnEveryTopology(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	write(t, file, canary+"\n")
	onEachTopology(t, func(t *testing.T, s topology) {
		for _, addr := range s.servers {
			aUser(t, addr, "ann", "on", ">"+canary, "~*", "&*", "+@all")
		}
		flags := append(s.flags, "--user", "ann", "--password-file", file)
		_, said := listedOn(t, flags...)
		check.True(t, said == "", "list says %q", said)
		load := append([]string{"--clients", "4", "--hold", "10ms", "--think", "10ms", "--duration", "1s"}, flags...)
		if s.redlock() {
			load = append(load, "--kind", "redlock")
		}
		got, report := reportOf(t, load...)
		for range 10 { // on a busy machine, the servers hardly answer for a second
			if report.Counts["acquired"] > 0 {
				break
			}
			got, report = reportOf(t, load...)
		}
		check.True(t, report.Counts["acquired"] > 0, "%v: %s", report.Counts, got.errors)
		other := filepath.Join(t.TempDir(), "other")
		write(t, other, "wrong\n")
		got = locktop(t, append(append([]string{"list"}, flags[:len(flags)-1]...), other)...)
		got.says(t, exitNoConnect, "WRONGPASS")
		check.False(t, strings.Contains(got.errors, "streaming"), "with another password: %+v", got)
	})
}
