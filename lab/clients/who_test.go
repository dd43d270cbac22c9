package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// identity is the part of the output of locktop who --json that the test needs.
type identity struct {
	KnownBy string `json:"known_by"`
	Clients []struct {
		Addr string `json:"addr"`
	} `json:"clients"`
}

// Locktop who names the connection of the holder for real libraries, and its two ways,
// coincidence and MONITOR, agree.
func TestWhoNamesTheConnectionOfEachLibrary(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	found, missing, err := Build(t.Context(), ".", bin)
	check.NoError(t, err)
	t.Log(missing)
	addr := servertest.RedisForTest(t).Addr()
	holders := map[string]func(*testing.T, string) string{
		"redsync": func(t *testing.T, key string) string { return redsyncHolder(t, addr, key) },
	}
	for _, c := range found {
		for _, name := range []string{"redis-py ", "redisson-form "} {
			if c.Name == name {
				holders[strings.TrimSpace(name)] = func(t *testing.T, key string) string { return programHolder(t, addr, c.Command, key) }
			}
		}
	}
	for name, hold := range holders {
		t.Run(name, func(t *testing.T) {
			want := hold(t, "lock:"+name)
			for how, flags := range map[string][]string{"coincidence": {"--for", "40s"}, "proof": {"--monitor"}} {
				args := append([]string{"who", "lock:" + name, "--json", "-u", "redis://" + addr}, flags...)
				cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "locktop"), args...)
				var errs strings.Builder
				cmd.Stderr = &errs
				out, err := cmd.Output()
				var id identity
				if err := json.Unmarshal(out, &id); err != nil || id.KnownBy != how || len(id.Clients) != 1 || id.Clients[0].Addr != want {
					t.Errorf("%s: %s (%v), want %s; it says\n%s", how, out, err, want, errs.String())
				}
				_ = err
			}
		})
	}
}

// redsyncHolder holds a lock with redsync and extends it every 1.5 s until the test ends.
// It returns the address of its connection.
func redsyncHolder(t *testing.T, addr, key string) string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	m := redsync.New(goredis.NewPool(rdb)).NewMutex(key, redsync.WithExpiry(6*time.Second))
	check.NoError(t, m.Lock())
	repeat(t, func() {
		ok, err := m.Extend()
		check.True(t, ok && err == nil, "extend: %v, %v", ok, err)
	})
	id := fmt.Sprintf("id=%d ", rdb.ClientID(t.Context()).Val())
	_, its, _ := strings.Cut(rdb.ClientList(t.Context()).Val(), id) // Redis 6.0 has no CLIENT INFO
	its, _, _ = strings.Cut(strings.TrimPrefix(its, "addr="), " ")
	return its
}

// repeat calls f every 1.5 s until the test ends.
func repeat(t *testing.T, f func()) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(1500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f()
			}
		}
	}()
}

// programHolder lets a client program hold a lock until the test ends. It extends the
// lock every 1.5 s, unless the program renews it by itself. It returns the address of the
// connection that appeared.
func programHolder(t *testing.T, addr, command, key string) string {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { admin.Close() })
	before := addresses(t, admin)
	p := startProgram(t, addr, command)
	got := p.lock(t, key, 6*time.Second, time.Second)
	check.Require(t, got["ok"] == true, "lock: %v", got)
	if !p.renews {
		repeat(t, func() {
			r := p.ask(t, map[string]any{"op": "extend", "token": got["token"], "ttl_ms": 6000})
			check.True(t, r["ok"] == true, "extend: %v", r)
		})
	}
	appeared := slices.DeleteFunc(addresses(t, admin), func(a string) bool { return slices.Contains(before, a) })
	check.Require(t, len(appeared) == 1, "it has the connections %v", appeared)
	return appeared[0]
}

// program is a running client program.
type program struct {
	in      io.Writer
	replies *bufio.Reader
	sent    int
	renews  bool
}

// startProgram runs a client program on a server until the test ends.
func startProgram(t *testing.T, addr, command string) *program {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "exec "+command)
	in := check.Must(cmd.StdinPipe())(t)
	out := check.Must(cmd.StdoutPipe())(t)
	check.NoError(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := &program{in: in, replies: bufio.NewReader(out)}
	hello := p.ask(t, map[string]any{"op": "hello", "v": 1, "urls": []string{"redis://" + addr}, "kind": "mutex"})
	p.renews = hello["renews"] == true
	return p
}

// lock asks for a lock, and returns the reply.
func (p *program) lock(t *testing.T, key string, ttl, wait time.Duration) map[string]any {
	return p.ask(t, map[string]any{"op": "lock", "key": key, "ttl_ms": ttl.Milliseconds(), "wait_ms": wait.Milliseconds()})
}

// ask sends a request and returns the reply to it. Events before it are ignored.
func (p *program) ask(t *testing.T, request map[string]any) map[string]any {
	if request["op"] != "hello" {
		p.sent++
		request["id"] = p.sent
	}
	line, err := json.Marshal(request)
	if err == nil {
		_, err = fmt.Fprintf(p.in, "%s\n", line)
	}
	for err == nil {
		var text []byte
		if text, err = p.replies.ReadBytes('\n'); err != nil {
			break
		}
		var reply map[string]any
		if err = json.Unmarshal(text, &reply); err == nil && reply["event"] == nil {
			return reply
		}
	}
	t.Errorf("%v: %v", request, err)
	return nil
}

// addresses returns the addresses of the clients of a server.
func addresses(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(rdb.ClientList(t.Context()).Val()) {
		_, rest, _ := strings.Cut(line, " addr=")
		addr, _, _ := strings.Cut(rest, " ")
		all = append(all, addr)
	}
	return all
}
