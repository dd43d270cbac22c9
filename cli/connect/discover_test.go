package connect

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

// A master without slots may be importing some, and then it has keys.
func TestMastersWithoutSlotsAreLookedAt(t *testing.T) {
	const nodes = `a 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-16383 [5->-b]
b 10.0.0.2:7000@17000,host master - 0 0 2 connected
c 10.0.0.3:7000@17000 slave a 0 0 1 connected
d 10.0.0.4:7000@17000 master,fail - 0 0 4 disconnected
e 10.0.0.5:7000@17000 master,fail? - 0 0 4 connected
f :0@0 master,noaddr - 0 0 5 disconnected
`
	seed := endpoint{network: "tcp", addr: "10.0.0.1:7000", user: "u", pass: "p"}
	var got []string
	for _, e := range withImporters([]endpoint{seed}, nodes, seed) {
		got = append(got, e.addr+" as "+e.user)
	}
	want := "10.0.0.1:7000 as u, 10.0.0.2:7000 as u"
	check.True(t, strings.Join(got, ", ") == want, "it looks at %q, want %q", got, want)
}

// The first server in order that answers soon is used. The search does not wait
// for servers that do not answer.
func TestTheFirstAnswerIsTaken(t *testing.T) {
	down := errors.New("down")
	type server struct {
		after time.Duration
		err   error
	}
	for name, c := range map[string]struct {
		all   []server
		want  int
		err   error
		takes time.Duration
	}{
		"all are well":          {[]server{{after: 2 * time.Millisecond}, {after: time.Millisecond}}, 0, nil, 2 * time.Millisecond},
		"the first hangs":       {[]server{{after: time.Minute}, {after: time.Millisecond}}, 1, nil, time.Millisecond + firstGrace},
		"the first is down":     {[]server{{err: down}, {after: time.Millisecond}, {after: 0}}, 1, nil, time.Millisecond},
		"the last hangs":        {[]server{{after: time.Millisecond}, {after: time.Minute}}, 0, nil, time.Millisecond},
		"one answers very late": {[]server{{err: down}, {after: 5 * time.Second}}, 1, nil, 5 * time.Second},
		"none answers":          {[]server{{err: down}, {err: errors.New("other")}}, 0, down, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ns := make([]int, len(c.all))
				for i := range ns {
					ns[i] = i
				}
				got, err := firstAnswer(ns, func(n int) (int, error) {
					time.Sleep(c.all[n].after)
					return n, c.all[n].err
				})
				took := time.Since(began)
				time.Sleep(time.Hour) // the late servers
				check.True(t, got == c.want && errors.Is(err, c.err) && took == c.takes,
					"%d, %v after %v; want %d, %v after %v", got, err, took, c.want, c.err, c.takes)
			})
		})
	}
}
