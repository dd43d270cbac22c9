package formats_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// The user of docs/operators.md with the line for an action can do it to the locks of all formats.
func TestTheDocumentedPermissionsToActAreEnough(t *testing.T) {
	t.Parallel()
	admin := connect(t, servertest.RedisForTest(t).Addr())
	lines := regexp.MustCompile(`(?m)^ACL SETUSER locktop .*$`).FindAllString(string(check.Must(os.ReadFile("../../docs/operators.md"))(t)), -1)
	as := func(user string, marks ...string) server.Client { // with the first line of each mark that the server accepts
		for _, mark := range marks {
			accepted := false
			for _, line := range lines {
				argv := []any{"ACL", "SETUSER", user}
				for _, rule := range strings.Fields(strings.NewReplacer(`"`, "", "CHANGE-ME", "pw").Replace(line))[3:] {
					argv = append(argv, rule)
				}
				accepted = accepted || strings.Contains(line, mark) && admin.Do(t.Context(), argv...).Err() == nil
			}
			check.Require(t, accepted, "no line with %s is accepted", mark)
		}
		rdb := server.NewClient(servertest.AddrOf(admin), server.ClientOptions{Username: user, Password: "pw"})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	releasing, extending := releaser(as("releasing", " reset ", "+eval +exists")), releaser(as("extending", " reset ", "+eval +get"))
	for i, f := range everyFormat {
		for _, s := range placesOf(f) {
			if f.Actions == nil || len(s.Want.Holders) == 0 || !testtier.InLong() && i%3 > 0 {
				continue
			}
			seen := placed(t, admin, s.Want.Key, clock(t, admin), s.Commands)
			if seen.Format == f.Name && f.Actions.Extend != "" {
				check.Must(extending.Act(t.Context(), later(seen), seen, 48*time.Hour))(t)
				seen = only(t, admin, s.Want.Key)
			}
			if seen.Format == f.Name {
				check.Must(releasing.Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
			}
		}
	}
	for _, r := range check.Must(admin.ACLLog(t.Context(), 100).Result())(t) {
		check.True(t, r.Object == "client", "%s is refused to %s", r.Object, r.Username) // CLIENT SETINFO of the test's client
	}
}
