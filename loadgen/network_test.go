package loadgen

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// across returns both ends of a connection over a new network.
func across(t *testing.T) (w *network, near, far net.Conn) {
	t.Helper()
	var commands atomic.Int64
	w = newNetwork(&commands)
	far, ours := net.Pipe()
	near, err := w.through(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, 0)(t.Context(), "tcp", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return w, near, far
}

// hear reads everything until the end of the connection, into a channel.
func hear(c net.Conn) chan string {
	heard := make(chan string, 100)
	go func() {
		defer close(heard)
		buf := make([]byte, 100)
		for {
			n, err := c.Read(buf)
			if n > 0 {
				heard <- string(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return heard
}

func TestWhatWasHeldBackArrivesWhenTheWireHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.cut(0, false)
		io.WriteString(near, "one")
		io.WriteString(near, "two")
		time.Sleep(time.Hour)
		if len(heard) > 0 {
			t.Fatal("a packet got through")
		}
		w.heal(0)
		if got := <-heard; got != "onetwo" {
			t.Errorf("got %q", got)
		}
	})
}

func TestClosingACutWireLosesNothingThatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.cut(0, false)
		io.WriteString(near, "last words")
		near.Close()
		w.heal(0)
		if got := <-heard; got != "last words" {
			t.Errorf("got %q", got)
		}
		if _, more := <-heard; more {
			t.Error("the connection stays open")
		}
	})
}

func TestRequestsPassWhereOnlyRepliesAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.cut(0, true)
		heard, replies := hear(far), hear(near)
		io.WriteString(near, "request")
		if got := <-heard; got != "request" {
			t.Errorf("got %q", got)
		}
		go io.WriteString(far, "reply")
		time.Sleep(time.Hour)
		if len(replies) > 0 {
			t.Fatal("a reply got through")
		}
		w.heal(0)
		if got := <-replies; got != "reply" {
			t.Errorf("got %q", got)
		}
	})
}

func TestWhoReadsACutWireIsHeldToItsDeadline(t *testing.T) {
	for _, replies := range []string{"reply", ""} {
		synctest.Test(t, func(t *testing.T) {
			w, near, far := across(t)
			w.cut(0, true)
			near.SetReadDeadline(time.Now().Add(time.Second))
			if replies != "" {
				go io.WriteString(far, replies)
			}
			began := time.Now()
			_, err := near.Read(make([]byte, 10))
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			w.heal(0) // heal causes only one error
			near.SetReadDeadline(time.Time{})
			if replies == "" {
				go io.WriteString(far, "reply")
			}
			got := make([]byte, 5)
			if _, err := io.ReadFull(near, got); err != nil || string(got) != "reply" {
				t.Errorf("%q, %v after the wire has healed", got, err)
			}
		})
	}
}

// A client that stops waiting for a reply may read it later. If a reply were
// lost, all later ones would go to the wrong requests.
func TestWhatArrivesAfterADeadlineIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		go io.WriteString(far, "first")
		trouble := map[string]func(){
			"cut":  func() { w.cut(0, true) },
			"slow": func() { w.slow(time.Minute, 0) },
		}
		for name, begin := range trouble {
			begin()
			near.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := near.Read(make([]byte, 3)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%s: %d bytes, %v", name, n, err)
			}
		}
		w.heal(0)
		near.SetReadDeadline(time.Time{})
		got := make([]byte, 5)
		if _, err := io.ReadFull(near, got); err != nil || string(got) != "first" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestADeadlineMayMoveWhileSomebodyReadsACutWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.cut(0, true)
		go io.WriteString(far, "reply")
		time.AfterFunc(time.Second, func() { near.SetReadDeadline(time.Unix(1, 0)) })
		began := time.Now()
		_, err := near.Read(make([]byte, 10))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestASlowWireDelaysEveryPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.slow(100*time.Millisecond, 20*time.Millisecond)
		for range 20 {
			go io.WriteString(far, "x")
			began := time.Now()
			near.Read(make([]byte, 1))
			if took := time.Since(began); took < 80*time.Millisecond || took > 120*time.Millisecond {
				t.Errorf("a packet took %s", took)
			}
		}
	})
}

func TestADeadWireIsDeadForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.cut(0, false)
		io.WriteString(near, "held back")
		w.kill()
		w.heal(0)
		if got, more := <-heard; more {
			t.Errorf("%q arrived from a client that is dead", got)
		}
		_, err := w.through((&net.Dialer{}).DialContext, 0)(t.Context(), "tcp", "127.0.0.1:1")
		if !errors.Is(err, errDead) {
			t.Errorf("dialed: %v", err)
		}
	})
}

func TestCommandsAreCountedWhereTheyBegin(t *testing.T) {
	for text, want := range map[string]int64{
		"":                     0,
		"*1\r\n$4\r\nPING\r\n": 1,
		"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$2\r\n*x\r\n":           2,
		"the rest of a long value\r\n*1\r\n$4\r\nPING\r\n":              1,
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n*not one*\r\n*1\r\n$4\r\n": 2,
	} {
		if got := commandsIn([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestAFrozenClientSendsNothingAlsoAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.freeze()
		io.WriteString(near, "what a timer would have sent")
		time.Sleep(time.Hour)
		w.thaw()
		if got, more := <-heard; more {
			t.Errorf("the server hears %q", got)
		}
		// The connection has ended. Otherwise a reply could be taken for
		// another.
		if _, err := near.Read(make([]byte, 1)); err == nil {
			t.Error("the connection goes on")
		}
	})
}

func TestASlowWireDelaysBothWaysAndManyPacketsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.slow(100*time.Millisecond, 0)
		for name, ends := range map[string][2]net.Conn{"requests": {near, far}, "replies": {far, near}} {
			began := time.Now()
			go func() {
				for range 10 {
					io.WriteString(ends[0], "x")
					time.Sleep(time.Millisecond)
				}
			}()
			for i := range 10 {
				if _, err := io.ReadFull(ends[1], make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if took, want := time.Since(began), 100*time.Millisecond+time.Duration(i)*time.Millisecond; took != want {
					t.Errorf("%s: packet %d came after %s, want %s", name, i, took, want)
				}
			}
		}
		io.WriteString(near, "last words")
		near.Close()
		got := make([]byte, 10)
		if _, err := io.ReadFull(far, got); err != nil || string(got) != "last words" {
			t.Errorf("closing lost what was on its way: %q, %v", got, err)
		}
	})
}

func TestNoConnectionIsMadeOverACutWireNorByAFrozenClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := across(t)
		_, ours := net.Pipe()
		defer ours.Close()
		dial := w.through(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, 0)
		for name, trouble := range map[string][2]func(){
			"cut":         {func() { w.cut(0, false) }, func() { w.heal(0) }},
			"cut replies": {func() { w.cut(0, true) }, func() { w.heal(0) }},
			"frozen":      {w.freeze, w.thaw},
		} {
			trouble[0]()
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := dial(soon, "tcp", "x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			time.AfterFunc(time.Second, trouble[1])
			if _, err := dial(t.Context(), "tcp", "x"); err != nil {
				t.Errorf("%s, and healed: %v", name, err)
			}
		}
	})
}

func TestACutBetweenAClientAndOneNodeLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commands atomic.Int64
		w := newNetwork(&commands)
		var near, far [3]net.Conn
		for node := 1; node <= 2; node++ {
			theirs, ours := net.Pipe()
			c, err := w.through(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, node)(t.Context(), "tcp", "x")
			if err != nil {
				t.Fatal(err)
			}
			near[node], far[node] = c, theirs
			defer c.Close()
		}
		one, two := hear(far[1]), hear(far[2])
		w.cut(2, false)
		io.WriteString(near[1], "to one")
		io.WriteString(near[2], "to two")
		if got := <-one; got != "to one" {
			t.Errorf("got %q", got)
		}
		time.Sleep(time.Hour)
		if len(two) > 0 {
			t.Fatal("a packet got through")
		}
		w.heal(1)
		time.Sleep(time.Hour)
		if len(two) > 0 {
			t.Fatal("another node was healed")
		}
		w.heal(2)
		if got := <-two; got != "to two" {
			t.Errorf("got %q", got)
		}
	})
}

// go-redis appends to the addresses of its options, so each client needs a
// slice of its own.
func TestClientsOfAClusterShareNoSliceOfAddresses(t *testing.T) {
	addrs := append(make([]string, 0, 8), "127.0.0.1:1")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer rdb.Close()
	c, err := newNetwork(nil).over(rdb)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = append(c.(*redis.ClusterClient).Options().Addrs, "127.0.0.1:2")
	if got := addrs[:2][1]; got != "" {
		t.Errorf("%s is behind the caller's addresses", got)
	}
}
