package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

// piped returns a piped server and its client.
func piped(t *testing.T) (*server.Embedded, server.Client) {
	e := server.NewPiped()
	t.Cleanup(e.Close)
	return e, servertest.ClientForTest(t, e.Addr(), e.Dial)
}

func TestKeysOfAPipedServerExpireAsTheBubblesTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := piped(t)
		ctx := t.Context()

		check.NoError(t, rdb.Set(ctx, "lock:a", "me", time.Hour).Err())
		time.Sleep(time.Hour - time.Millisecond)
		check.Equal(t, rdb.PTTL(ctx, "lock:a").Val(), time.Millisecond, "a millisecond before its end the key lives for another")
		time.Sleep(time.Millisecond)
		check.True(t, rdb.Exists(ctx, "lock:a").Val() == 0, "the key outlived its TTL")
	})
}

func TestAPipedServerExecutesSetIfEqualIfItShall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, rdb := piped(t)
		servertest.KnowIfEqual(e)
		set := func(old, value string) error {
			return rdb.Do(t.Context(), "set", "lock:a", value, "ifeq", old, "px", 1000).Err()
		}
		check.ErrorIs(t, set("me", "other"), redis.Nil, "without the key")
		check.NoError(t, rdb.Set(t.Context(), "lock:a", "me", time.Hour).Err())
		if err := set("you", "other"); !errors.Is(err, redis.Nil) || rdb.Get(t.Context(), "lock:a").Val() != "me" {
			t.Errorf("with another value: %v, want nil and the old value", err)
		}
		err := set("me", "other")
		check.True(t, err == nil && rdb.Get(t.Context(), "lock:a").Val() == "other", "with the value: %v", err)
		check.Equal(t, rdb.PTTL(t.Context(), "lock:a").Val(), time.Second, "the TTL is")
	})
}

func TestLongPipelineAndItsAnswersPassEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := piped(t)
		value := strings.Repeat("x", 1000)
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range 1000 {
				p.SetEx(t.Context(), strconv.Itoa(i), value, time.Hour)
				p.Get(t.Context(), strconv.Itoa(i))
			}
			return nil
		})
		check.ErrorIs(t, err, nil)
	})
}

func TestCommandSentBeforeAHangUpIsStillDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		defer e.Close()
		conn := check.Must(e.Dial(t.Context(), "", ""))(t)
		const incr = "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"
		check.Must(io.WriteString(conn, strings.Repeat(incr, 5000)))(t)
		conn.Close()
		synctest.Wait()

		rdb := server.NewClient(e.Addr(), server.ClientOptions{Dial: e.Dial})
		defer rdb.Close()
		n, err := rdb.Get(t.Context(), "n").Int()
		check.True(t, n == 5000, "%d of 5000 commands were done, %v", n, err)
	})
}

func TestEmbeddedServerListensOnLoopbackOnly(t *testing.T) {
	host, _, err := net.SplitHostPort(servertest.EmbeddedForTest(t).Addr())
	check.NoError(t, err)
	check.True(t, net.ParseIP(host).IsLoopback(), "it listens on %s", host)
}

func TestClosedEmbeddedServerRefusesToBeDialled(t *testing.T) {
	e := server.NewPiped()
	conn := check.Must(e.Dial(t.Context(), "", ""))(t)
	e.Close()
	e.Close()
	_, err := conn.Read(make([]byte, 1))
	check.True(t, err != nil, "a connection survived Close")
	if _, err := e.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial after Close says %v, want net.ErrClosed", err)
	}
}

func TestDialHeedsItsContext(t *testing.T) {
	e := server.NewPiped()
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Dial(ctx, "", "")
	check.True(t, errors.Is(err, context.Canceled), "Dial under a cancelled context says %v", err)
}

// The server goes on though a client does not read its replies, as long as a socket
// would buffer them.
func TestAClientThatDoesNotReadDoesNotStopTheEmbeddedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		defer e.Close()
		conn := check.Must(e.Dial(t.Context(), "", ""))(t)
		defer conn.Close()
		for range 100 {
			check.Must(io.WriteString(conn, "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"))(t)
			synctest.Wait()
		}
		rdb := server.NewClient(e.Addr(), server.ClientOptions{Dial: e.Dial})
		defer rdb.Close()
		n, err := rdb.Get(t.Context(), "n").Int()
		check.True(t, err == nil && n == 100, "the server has run %d of 100 commands, %v", n, err)
	})
}
