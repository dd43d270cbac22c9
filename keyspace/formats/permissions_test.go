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

// The user of docs/operators.md with the line for an action can do it to the locks of all formats. Each command of
// the line is in a script of the action.
func TestTheDocumentedPermissionsToActAreEnough(t *testing.T) {
	t.Parallel()
	admin := connect(t, servertest.RedisForTest(t).Addr())
	page := string(check.Must(os.ReadFile("../../docs/operators.md"))(t))
	line := func(user, mark string) []string { // the first one with the mark that the server accepts
		for _, found := range regexp.MustCompile(`(?m)^ACL SETUSER locktop (.*)$`).FindAllStringSubmatch(page, -1) {
			rules := strings.Fields(strings.NewReplacer(`"`, "", "CHANGE-ME", "pw").Replace(found[1]))
			if argv := append([]any{"ACL", "SETUSER", user}, words(rules)...); strings.Contains(found[0], mark) && admin.Do(t.Context(), argv...).Err() == nil {
				return rules
			}
		}
		t.Fatalf("no line with %s is accepted", mark)
		return nil
	}
	as := func(user, mark string) (server.Client, []string) {
		line(user, " reset ")
		rules := line(user, mark)
		rdb := server.NewClient(servertest.AddrOf(admin), server.ClientOptions{Username: user, Password: "pw"})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb, rules
	}
	releasing, mayRelease := as("releasing", "+eval +exists")
	extending, mayExtend := as("extending", "+eval +get")
	inRelease, inExtend := "zrem srem hdel zscore sismember hexists ", "zscore sismember hexists pexpire "
	for i, f := range everyFormat {
		if f.Actions == nil {
			continue
		}
		inRelease, inExtend = inRelease+f.Actions.ForceRelease, inExtend+f.Actions.Extend
		for _, s := range placesOf(f) {
			if !testtier.InLong() && i%3 > 0 || len(s.Want.Holders) == 0 {
				continue
			}
			seen := placed(t, admin, s.Want.Key, clock(t, admin), s.Commands)
			if seen.Format == f.Name && f.Actions.Extend != "" {
				check.Must(releaser(extending).Act(t.Context(), later(seen), seen, 48*time.Hour))(t)
				seen = only(t, admin, s.Want.Key)
			}
			if seen.Format == f.Name {
				check.Must(releaser(releasing).Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
			}
		}
	}
	for _, r := range check.Must(admin.ACLLog(t.Context(), 100).Result())(t) {
		check.True(t, r.Object == "client", "%s is refused to %s", r.Object, r.Username) // CLIENT SETINFO of the test's client
	}
	for rules, in := range map[*[]string]string{&mayRelease: inRelease, &mayExtend: inExtend} {
		for _, rule := range *rules {
			if name, command := strings.CutPrefix(rule, "+"); command && name != "eval" {
				check.True(t, regexp.MustCompile(`(?i)\b`+name+`\b`).MatchString(in), "no script has %s", rule)
			}
		}
	}
}

// words returns words as the arguments of a command.
func words(all []string) (argv []any) {
	for _, one := range all {
		argv = append(argv, one)
	}
	return argv
}
