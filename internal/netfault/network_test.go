package netfault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

// across returns both ends of a connection over a new network.
func across(t *testing.T) (w *Network, near, far net.Conn) {
	t.Helper()
	far, ours := net.Pipe()
	w = New(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
	near = check.Must(w.Dial(t.Context(), "tcp", "x"))(t)
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

func TestHeldBackDataArrivesAfterHeal(t *testing.T) {
	for _, holdBack := range []func(*Network){(*Network).Partition, (*Network).Freeze} {
		synctest.Test(t, func(t *testing.T) {
			w, near, far := across(t)
			heard := hear(far)
			holdBack(w)
			io.WriteString(near, "one")
			io.WriteString(near, "two")
			time.Sleep(time.Hour)
			check.Require(t, len(heard) == 0, "a packet got through")
			w.Heal()
			check.Equal(t, <-heard, "onetwo")
		})
	}
}

func TestHeldBackDataArrivesAfterTheDeadlineOfItsWrite(t *testing.T) {
	for name, switches := range map[string]func(*Network) (end func()){
		"held back": func(w *Network) func() { w.Freeze(); return w.Thaw },
		"delayed": func(w *Network) func() {
			w.Delay(func() time.Duration { return time.Hour })
			return func() {}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, near, far := across(t)
			heard := hear(far)
			end := switches(w)
			near.SetWriteDeadline(time.Now().Add(time.Second))
			io.WriteString(near, "one")
			time.Sleep(time.Minute)
			end()
			select {
			case got := <-heard:
				check.True(t, got == "one", "%s: got %q", name, got)
			case <-time.After(2 * time.Hour):
				t.Errorf("%s: nothing arrived", name)
			}
		})
	}
}

func TestCloseWakesTheReaderAlsoIfDataIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.Freeze()
		io.WriteString(near, "last words")
		read := make(chan error, 1)
		go func() {
			_, err := near.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		near.Close()
		synctest.Wait()
		select {
		case err := <-read:
			check.ErrorIs(t, err, net.ErrClosed)
		default:
			t.Error("the reader still waits")
		}
		w.Heal()
		check.Equal(t, <-heard, "last words")
		_, more := <-heard
		check.True(t, !more, "the connection stays open")
	})
}

func TestRequestsPassIfOnlyRepliesAreFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.PartitionReplies()
		heard, replies := hear(far), hear(near)
		io.WriteString(near, "request")
		check.Equal(t, <-heard, "request")
		go io.WriteString(far, "reply")
		time.Sleep(time.Hour)
		check.Require(t, len(replies) == 0, "a reply got through")
		w.Heal()
		check.Equal(t, <-replies, "reply")
	})
}

// Only the client reads replies from a pipe: if the first one that is held back
// stopped the server, it would run no other request.
func TestAServerDoesNotWaitForRepliesThatAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		replies := hear(near)
		synctest.Wait()
		w.FreezeReplies()
		written := 0
		go func() {
			for _, reply := range []string{"one", "two", "three"} {
				io.WriteString(far, reply)
				written++
			}
			far.Close()
		}()
		synctest.Wait()
		check.Equal(t, near.(*conn).NetConn(), nil, "while they are held back go-redis inspects")
		check.True(t, written == 3 && len(replies) == 0, "the server wrote %d of 3 replies, %d arrived", written, len(replies))
		w.Heal()
		check.Equal(t, <-replies+<-replies+<-replies, "onetwothree")
		_, more := <-replies
		check.True(t, !more, "the end of the server is lost")
	})
}

func TestAFrozenReadEndsAtItsDeadline(t *testing.T) {
	for _, replies := range []string{"reply", ""} {
		synctest.Test(t, func(t *testing.T) {
			w, near, far := across(t)
			w.PartitionReplies()
			near.SetReadDeadline(time.Now().Add(time.Second))
			if replies != "" {
				go io.WriteString(far, replies)
			}
			began := time.Now()
			_, err := near.Read(make([]byte, 10))
			check.True(t, errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) == time.Second, "%v after %s", err, time.Since(began))
			w.Heal() // heal causes only one error
			near.SetReadDeadline(time.Time{})
			if replies == "" {
				go io.WriteString(far, "reply")
			}
			got := make([]byte, 5)
			if _, err := io.ReadFull(near, got); err != nil || string(got) != "reply" {
				t.Errorf("%q, %v after Heal", got, err)
			}
		})
	}
}

// A client that stops waiting for a reply may read it later. If a reply were
// lost, all later ones would go to the wrong requests.
func TestDataThatArrivesAfterADeadlineIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		go io.WriteString(far, "first")
		trouble := map[string]func(){
			"cut":  func() { w.PartitionReplies() },
			"slow": func() { w.Delay(func() time.Duration { return time.Minute }) },
		}
		for name, begin := range trouble {
			begin()
			near.SetReadDeadline(time.Now().Add(time.Second))
			n, err := near.Read(make([]byte, 3))
			check.Require(t, n <= 0 && errors.Is(err, os.ErrDeadlineExceeded), "%s: %d bytes, %v", name, n, err)
		}
		w.Heal()
		near.SetReadDeadline(time.Time{})
		got := make([]byte, 5)
		_, err := io.ReadFull(near, got)
		check.True(t, err == nil && string(got) == "first", "got %q, %v", got, err)
	})
}

func TestADeadlineMayMoveDuringAFrozenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.PartitionReplies()
		go io.WriteString(far, "reply")
		time.AfterFunc(time.Second, func() { near.SetDeadline(time.Unix(1, 0)) })
		began := time.Now()
		_, err := near.Read(make([]byte, 10))
		check.True(t, errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) == time.Second, "%v after %s", err, time.Since(began))
	})
}

// errDead is the error of a dial by a dead client.
var errDead = errors.New("dead")

func TestACutConnectionNeverHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.Partition()
		io.WriteString(near, "held back")
		w.Refuse(errDead)
		w.Cut()
		w.Heal()
		got, more := <-heard
		check.True(t, !more, "%q arrived from a client that is dead", got)
		_, err := w.Dial(t.Context(), "tcp", "127.0.0.1:1")
		check.ErrorIs(t, err, errDead, "dialed")
		w.Refuse(nil)
		check.Must(w.Dial(t.Context(), "tcp", "127.0.0.1:1"))(t)
		w.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errDead }
		_, err = w.Dial(t.Context(), "tcp", "127.0.0.1:1")
		check.ErrorIs(t, err, errDead, "a dialer that fails")
	})
}

func TestAFrozenClientSendsNothingAlsoAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		heard := hear(far)
		w.Suspend()
		io.WriteString(near, "what a timer would have sent")
		time.Sleep(time.Hour)
		w.Resume()
		got, more := <-heard
		check.True(t, !more, "the server hears %q", got)
		// The connection has ended. Otherwise a reply could be taken for
		// another.
		_, err := near.Read(make([]byte, 1))
		check.True(t, err != nil, "the connection goes on")
	})
}

func TestADelayAffectsBothDirectionsAndManyPacketsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		w.Delay(func() time.Duration { return 100 * time.Millisecond })
		for name, ends := range map[string][2]net.Conn{"requests": {near, far}, "replies": {far, near}} {
			began := time.Now()
			go func() {
				for range 10 {
					io.WriteString(ends[0], "x")
					time.Sleep(time.Millisecond)
				}
			}()
			for i := range 10 {
				check.Must(io.ReadFull(ends[1], make([]byte, 1)))(t)
				took, want := time.Since(began), 100*time.Millisecond+time.Duration(i)*time.Millisecond
				check.True(t, took == want, "%s: packet %d arrived after %s, want %s", name, i, took, want)
			}
		}
		io.WriteString(near, "last words")
		near.Close()
		got, err := io.ReadAll(far)
		check.True(t, err == nil && string(got) == "last words", "closing lost what was on its way: %q, %v", got, err)
	})
}

// The first packets of a connection are not delayed if Undelayed is set, nor are requests by
// DelayReplies. Thaw delivers what is on its way.
func TestTheHandshakeIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, near, far := across(t)
		check.True(t, near.(*conn).NetConn() != nil, "go-redis has nothing to inspect")
		w.Undelayed = 2
		second := func() time.Duration { return time.Second }
		arrives := func(from, to net.Conn, after time.Duration, what string) {
			t.Helper()
			began := time.Now()
			go io.WriteString(from, "x")
			check.Must(to.Read(make([]byte, 1)))(t)
			check.Equal(t, time.Since(began), after, "%s arrived after", what)
		}
		w.Delay(second)
		for i, after := range []time.Duration{0, 0, time.Second, time.Second} {
			arrives(near, far, after, fmt.Sprint("request ", i))
			arrives(far, near, after, fmt.Sprint("reply ", i))
		}
		w.DelayReplies(second)
		arrives(near, far, 0, "a request")
		arrives(far, near, time.Second, "a reply")
		w.Delay(second)
		time.AfterFunc(500*time.Millisecond, w.Thaw)
		arrives(near, far, 500*time.Millisecond, "a request before the thaw")
	})
}

func TestAPartitionAndASuspendedClientMakeNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := across(t)
		_, ours := net.Pipe()
		defer ours.Close()
		w.dial = func(context.Context, string, string) (net.Conn, error) { return ours, nil }
		for name, trouble := range map[string][2]func(){
			"cut":         {func() { w.Partition() }, func() { w.Heal() }},
			"cut replies": {func() { w.PartitionReplies() }, func() { w.Heal() }},
			"frozen":      {w.Suspend, w.Resume},
		} {
			trouble[0]()
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := w.Dial(soon, "tcp", "x")
			check.True(t, errors.Is(err, context.DeadlineExceeded), "%s: %v", name, err)
			cancel()
			time.AfterFunc(time.Second, trouble[1])
			if _, err := w.Dial(t.Context(), "tcp", "x"); err != nil {
				t.Errorf("%s, and healed: %v", name, err)
			}
		}
	})
}

// proxied returns both ends of a connection over a proxy of a new network.
func proxied(t *testing.T) (n *Network, proxy *Proxy, near, far net.Conn) {
	t.Helper()
	server := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	n = New((&net.Dialer{}).DialContext)
	proxy = check.Must(n.Listen("tcp", server.Addr().String()))(t)
	near = check.Must(net.Dial("tcp", proxy.Addr()))(t)
	far = check.Must(server.Accept())(t)
	t.Cleanup(func() {
		near.Close()
		far.Close()
		server.Close()
	})
	return n, proxy, near, far
}

func TestAProxyLeadsOverTheNetwork(t *testing.T) {
	n, proxy, near, far := proxied(t)
	requests, replies := hear(far), hear(near)
	io.WriteString(near, "one")
	got := <-requests
	check.Require(t, got == "one", "the server got %q", got)
	n.FreezeReplies()
	io.WriteString(far, "two")
	io.WriteString(near, "three")
	check.Equal(t, <-requests, "three", "the server")
	n.Partition()
	io.WriteString(near, "four")
	select {
	case got := <-replies:
		t.Fatalf("a reply got through: %q", got)
	case got := <-requests:
		t.Fatalf("a request got through: %q", got)
	case <-time.After(100 * time.Millisecond):
	}
	near.Close() // the client dies: what it sent still arrives
	n.Heal()
	check.Equal(t, <-requests, "four", "the server")
	if got, open := <-requests; open {
		t.Errorf("the server got %q", got)
	}
	check.ErrorIs(t, proxy.Close(), nil)
	_, err := net.Dial("tcp", proxy.Addr())
	check.True(t, err != nil, "the address is still open")
}

func TestAClosedProxyEndsItsConnections(t *testing.T) {
	n, proxy, near, far := proxied(t)
	requests, replies := hear(far), hear(near)
	n.PartitionReplies()
	io.WriteString(far, "held back")
	check.ErrorIs(t, proxy.Close(), nil)
	for _, ends := range []chan string{requests, replies} {
		got, open := <-ends
		check.True(t, !open, "got %q instead of the end", got)
	}
}
