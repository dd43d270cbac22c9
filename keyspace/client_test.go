package keyspace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
)

// The lines are those of real servers.
func TestClientsAreParsedFromEachServersList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server, line string
		want         Client
	}{
		{"Redis 6.0", "id=3 addr=127.0.0.1:52312 fd=8 name=web-1 age=61 idle=2 flags=N db=0 sub=0 psub=0 multi=-1 qbuf=0 qbuf-free=0 obl=0 oll=0 omem=0 events=r cmd=evalsha user=app\n",
			Client{ID: 3, Addr: "127.0.0.1:52312", Name: "web-1", User: "app", Age: 61 * time.Second, Idle: 2 * time.Second, Command: "evalsha", Commands: -1}},
		{"Redis 7.0", "id=7 addr=[::1]:5 laddr=[::1]:6379 fd=8 name= age=1 idle=0 flags=P db=0 sub=1 psub=0 ssub=0 multi=-1 qbuf=26 qbuf-free=16864 argv-mem=10 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 omem=0 tot-mem=18682 events=r cmd=client|list user=default redir=-1 resp=2\n",
			Client{ID: 7, Addr: "[::1]:5", User: "default", Age: time.Second, Command: "client|list", Commands: -1}},
		{"Redis 8.0", "id=9 addr=10.2.3.4:40000 laddr=10.0.0.1:6379 fd=8 name=a=b age=1 idle=0 flags=N db=0 sub=0 multi=-1 cmd=SET user=u redir=-1 resp=3 lib-name=redis-py lib-ver=5.0.1 io-thread=0 tot-net-in=1 tot-net-out=2 tot-cmds=17\n",
			Client{ID: 9, Addr: "10.2.3.4:40000", Name: "a=b", User: "u", Library: "redis-py 5.0.1", Age: time.Second, Command: "set", Commands: 17}},
	} {
		got := ParseClients(c.line)
		check.True(t, slices.Equal(got, []Client{c.want}), "%s: %+v, want %+v", c.server, got, c.want)
	}
	for _, flags := range []string{"S", "M", "O", "xO"} {
		got := ParseClients("id=3 addr=127.0.0.1:1 flags=" + flags + " cmd=x\n")
		check.True(t, len(got) == 0, "with the flags %s, %+v counts as a client", flags, got)
	}
	check.Equal(t, len(ParseClients("nonsense\n\nid=x addr=\n")), 0, "clients in nonsense")
}

func TestTheValueOfALockNamesItsClients(t *testing.T) {
	t.Parallel()
	all := []Client{
		{ID: 1, Name: "web-1", Addr: "10.2.3.4:1000"}, {ID: 2, Name: "web-1", Addr: "10.2.3.4:1001"}, {ID: 3, Name: "web-11", Addr: "10.2.3.44:1000"},
		{ID: 4, Addr: "127.0.0.1:1000"}, {ID: 5, Name: "été", Addr: "10.9.9.9:1"},
		{ID: 6, Name: "worker", Addr: "10.9.9.8:1"}, {ID: 7, Name: "token", Addr: "10.9.9.7:1"}, {ID: 8, Name: "service", Addr: "10.9.9.7:2"},
	}
	const hint = true
	for _, c := range []struct {
		holder Holder
		want   []int64
		hint   bool
	}{
		{Holder{ID: "x", Label: "web-1"}, []int64{1, 2}, !hint},
		{Holder{ID: "web-11"}, []int64{3}, !hint},
		{Holder{ID: "4711@web-11:ab"}, []int64{3}, hint},
		{Holder{ID: "t", Label: "host 10.2.3.4, pid 5"}, []int64{1, 2}, !hint},
		{Holder{ID: "10.2.3.4:1001/7"}, []int64{2}, !hint},
		{Holder{ID: "10.2.3.4:10011"}, []int64{1, 2}, !hint}, // the address is another one, the host is the same
		{Holder{ID: "110.2.3.4"}, nil, !hint},
		{Holder{ID: "at 127.0.0.1"}, nil, !hint},
		{Holder{ID: "127.0.0.1:1000"}, []int64{4}, !hint},
		{Holder{ID: "xété"}, nil, !hint},
		{Holder{ID: "b2f4-9ad0"}, nil, !hint},
		{Holder{}, nil, !hint},
		{Holder{ID: "invoice-worker-3"}, []int64{6}, hint},
		{Holder{ID: `{"host":"db-7","service":"main","token":"abc"}`}, nil, !hint}, // only the names of its fields are names of clients
		{Holder{ID: `{"host":"db-7","by":["x",{"y":"worker"}]}`}, []int64{6}, hint},
		{Holder{ID: `{"by":"invoice-worker-3"}`}, nil, !hint},
		{Holder{ID: `{"from":"10.2.3.4:1001"}`}, []int64{2}, !hint},
		{Holder{ID: `{"worker"`}, []int64{6}, hint}, // not JSON
	} {
		var got []int64
		found, hint := c.holder.ClientsOf(all)
		for _, one := range found {
			got = append(got, one.ID)
		}
		check.True(t, slices.Equal(got, c.want) && hint == c.hint,
			"%+v names %v, hint %v, want %v, %v", c.holder, got, hint, c.want, c.hint)
	}
}

// A list of some connections says nothing about the others.
func TestAListOfSomeClientsClosesNoOther(t *testing.T) {
	var c Closings
	at := time.Unix(0, 0)
	c.Listed([]Client{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}, nil, nil, at, at)
	c.Listed(nil, []int64{1}, nil, at, at)
	_, a := c.Of(&Holder{ID: "a"}, 0)
	_, b := c.Of(&Holder{ID: "b"}, 0)
	check.True(t, a && !b, "a has closed: %v, b has closed: %v", a, b)
}

func TestAHolderNamesItsProcess(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"web-1:4711": "4711 on web-1, if that is a host", "4711@web-1.internal": "4711 on web-1.internal", "4711@web": "4711 on web",
		"localhost:4711": "4711 on localhost, if that is a host", "db.internal:4711": "4711 on db.internal, if that is a host",
		"job:1234": "", "nightly-report:2024": "", "a/b:4711": "", "web-1:0471": "", "web-1:99999999": "",
		"10.2.3.4:4711": "", "-oProxyCommand=x:4711": "", "-x:4711": "", "b0f1d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:52": "", "4711": "", "": "", ":1": "",
	} {
		got := ""
		if p, ok := (Holder{Label: label}).Process(); ok {
			got = p.String()
		}
		check.True(t, got == want, "%q is %q, want %q", label, got, want)
	}
}

// Keys whose parts differ in IDs, or in a name at the end, are of one class.
func TestAlikeKeysHaveOneClass(t *testing.T) {
	for key, want := range map[string]string{
		"order:4711": "order:*", "order:4711:processing": "order:*:processing",
		"session:3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d": "session:*",
		"route:device:aabb":                            "route:device:*", "presence/alice": "presence/*",
		"nightly": "nightly", "": "", ":": ":*", "a:": "a:*",
	} {
		check.Equal(t, AlikeClass(key), want, "the class of %q is", key)
	}
	check.AtMost(t, len(AlikeClass(strings.Repeat("word:", 1000)+"x")), maxClassName+1, "bytes of a class")
}

func TestTheClassesThatAreNotShownAreNamed(t *testing.T) {
	check.AtMost(t, len(AlikeProblems(nil)), 0, "problems without classes")
	got := AlikeProblems(map[string]int{"a:*": 300, "b:*": 2000, "c:*": 301, "d:*": 250, "e:*": 250})
	want := "3,101 keys may be locks, but too many are alike (b:*, c:*, a:*, 2 more)"
	check.True(t, len(got) == 1 && strings.HasPrefix(got[0], want), "it is %q, want %q …", got, want)
}
