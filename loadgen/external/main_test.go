//go:build unix

package external

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asClient is the environment variable that makes this test binary a client, which
// behaves as its value says.
const asClient = "LOCKTOP_TEST_CLIENT"

func TestMain(m *testing.M) {
	switch how := os.Getenv(asClient); how {
	case "":
		_ = flag.Set("test.parallel", "8") // the tests wait for their clients
		goleak.VerifyTestMain(m)
	case "parent":
		parent()
	default:
		(&client{how: how, out: os.Stdout, held: map[string]string{}}).run(os.Stdin)
	}
}

// command returns the command of a client that behaves in a way.
func command(how string) string { return fmt.Sprintf("%s=%s exec '%s'", asClient, how, os.Args[0]) }

// client is a client with locks in memory, and with one defect.
type client struct {
	how   string
	out   io.Writer
	held  map[string]string // key by token
	last  int64
	first func() // an answer that waits
}

func (c *client) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func (c *client) run(in io.Reader) {
	if c.how == "never-reads" {
		c.say(`{"ok":true,"name":"test 1"}`)
		time.Sleep(time.Hour)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		switch r.Op {
		case opHello:
			c.greet()
		case opLock:
			if c.how != "cancels" {
				c.lock(r)
			}
		case opUnlock:
			_, held := c.held[r.Token]
			delete(c.held, r.Token)
			c.say(`{"id":%d,"ok":%t,"lost":%t}`, r.ID, held, !held)
		case opExtend:
			if c.how == "slow" {
				time.Sleep(100 * time.Millisecond)
			}
			c.say(`{"id":%d,"ok":true,"valid_ms":%d}`, r.ID, r.TTL)
		case opCancel:
			c.say(`{"id":%d,"ok":false,"held":true}`, r.ID)
		case opBye:
			if c.how == "stays" {
				time.Sleep(time.Hour)
			}
			return
		}
	}
}

// greet says hello, with the defects of a client that shows them at its start.
func (c *client) greet() {
	switch c.how {
	case "silent":
		time.Sleep(time.Hour)
	case "garbage":
		c.say("Traceback (most recent call last)\x1b[2J")
	case "number":
		c.say("42")
	case "version-2":
		c.say(`{"ok":true,"v":2,"name":"test 2"}`)
	case "refuses":
		c.say(`{"ok":false,"error":"version 1? never heard of it"}`)
	case "nameless":
		c.say(`{"ok":true}`)
	case "early-reply":
		c.say(`{"id":1,"ok":true}`)
	case "wrong-type":
		c.say(`{"ok":"yes","name":"test"}`)
	case "exits":
		fmt.Fprint(os.Stderr, "line 1\nline 2\nline 3\nno module named \x1b[31mredis\n")
		os.Exit(3)
	case "no-newline":
		chunk := strings.Repeat("x", 1<<20)
		for range 100 {
			fmt.Fprint(c.out, chunk)
		}
	case "stderr":
		chunk := strings.Repeat(strings.Repeat("e", 99)+"\n", 10_000)
		for range 100 {
			fmt.Fprint(os.Stderr, chunk)
		}
		fallthrough
	default:
		c.say(`{"ok":true,"name":"test 1","kinds":["mutex"],"renews":true,"fences":true,"tells":true,"color":"blue"}`)
	}
}

// lock answers a request for a lock, with the defects that a client shows then.
func (c *client) lock(r Request) {
	c.last++
	token := fmt.Sprint("t", c.last)
	granted := func() { c.say(`{"id":%d,"ok":true,"token":%q,"valid_ms":%d,"fence":%d}`, r.ID, token, r.TTL, c.last) }
	for _, key := range c.held {
		if key == r.Key {
			c.say(`{"id":%d,"ok":false,"held":true}`, r.ID)
			return
		}
	}
	switch c.how {
	case "unknown-id":
		c.say(`{"id":%d,"ok":true,"token":"x","valid_ms":1000}`, r.ID+7)
	case "no-id":
		c.say(`{"ok":true,"token":"x","valid_ms":1000}`)
	case "twice":
		granted()
		granted()
	case "tokenless":
		c.say(`{"id":%d,"ok":true,"valid_ms":1000}`, r.ID)
	case "timeless":
		c.say(`{"id":%d,"ok":true,"token":"x"}`, r.ID)
	case "eternal":
		c.say(`{"id":%d,"ok":true,"token":"x","valid_ms":99999999999999999}`, r.ID)
	case "expired":
		c.say(`{"id":%d,"ok":true,"token":"x","valid_ms":-5000}`, r.ID)
	case "hangs":
		time.Sleep(time.Hour)
	case "exits-later":
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(4)
	case "same-token":
		c.held["mine"] = "" // also if it is locked again
		c.say(`{"id":%d,"ok":true,"token":"mine","valid_ms":1000}`, r.ID)
	case "reversed": // every second request is answered first
		if c.last%2 == 1 {
			c.first = granted
			return
		}
		granted()
		c.first()
	case "events":
		for {
			c.say(`{"event":"noise","token":"x"}`)
		}
	case "fails":
		c.say(`{"id":%d,"ok":false,"error":"READONLY You can't write"}`, r.ID)
	case "loses":
		c.held[token] = r.Key
		granted()
		c.say(`{"event":"lost","token":"nobody's"}`)
		c.say(`{"event":"renewed","token":%q,"valid_ms":3600000}`, token)
		c.say(`{"event":"lost","token":%q}`, token)
	case "slow":
		time.Sleep(200 * time.Millisecond)
		c.held[token] = r.Key
		granted()
	case "forks":
		fork := exec.Command("sleep", "1000")
		fork.Stdout = os.Stdout // it keeps the pipe open
		if err := fork.Start(); err != nil {
			panic(err)
		}
		c.say(`{"id":%d,"ok":true,"token":"%d","valid_ms":1000}`, r.ID, fork.Process.Pid)
	case "forks-and-exits":
		fork := exec.Command("sleep", "1000")
		fork.Stdout = os.Stdout
		if err := fork.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, fork.Process.Pid)
		os.Exit(5)
	default:
		c.held[token] = r.Key
		granted()
	}
}
