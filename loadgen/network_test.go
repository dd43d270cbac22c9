package loadgen

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"

	"github.com/redis/go-redis/v9"
)

func TestCommandsAreCountedWhereTheyBegin(t *testing.T) {
	for text, want := range map[string]int64{
		"":                     0,
		"*1\r\n$4\r\nPING\r\n": 1,
		"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$2\r\n*x\r\n":           2,
		"the rest of a long value\r\n*1\r\n$4\r\nPING\r\n":              1,
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n*not one*\r\n*1\r\n$4\r\n": 2,
	} {
		check.Equal(t, commandsIn([]byte(text)), want, "%q", text)
	}
}

func TestACutBetweenAClientAndOneNodeLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commands atomic.Int64
		w := newNetwork(&commands)
		var near, far [3]net.Conn
		for node := 1; node <= 2; node++ {
			theirs, ours := net.Pipe()
			c, err := w.through(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, node)(t.Context(), "tcp", "x")
			check.NoError(t, err)
			near[node], far[node] = c, theirs
			defer c.Close()
		}
		received := func(node int) string {
			far[node].SetReadDeadline(time.Now().Add(time.Hour))
			buf := make([]byte, 100)
			n, _ := far[node].Read(buf)
			return string(buf[:n])
		}
		w.cut(2, false)
		go io.WriteString(near[1], "to one")
		go io.WriteString(near[2], "to two")
		check.Equal(t, received(1), "to one")
		check.Require(t, received(2) == "", "a packet got through")
		w.heal(1)
		check.Require(t, received(2) == "", "another node was healed")
		go w.heal(2)
		check.Equal(t, received(2), "to two")
	})
}

// go-redis appends to the addresses of its options, so each client needs a slice of its own.
func TestClientsOfAClusterShareNoSliceOfAddresses(t *testing.T) {
	addrs := append(make([]string, 0, 8), "127.0.0.1:1")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer rdb.Close()
	c := check.Must(newNetwork(new(atomic.Int64)).over(rdb))(t)
	defer c.Close()
	_ = append(c.(*redis.ClusterClient).Options().Addrs, "127.0.0.1:2")
	check.Equal(t, addrs[:2][1], "", "behind the caller's addresses")
}
