package cli

import (
	"strings"

	"github.com/spf13/pflag"
)

// topologyFlags holds the flags that turn one address into several servers.
type topologyFlags struct {
	cluster       bool
	sentinels     []string
	master        string
	redlock       []string
	preferReplica bool
}

func (s *topologyFlags) addTo(set *pflag.FlagSet) {
	set.BoolVar(&s.cluster, "cluster", false, "all masters of the cluster that the server belongs to")
	set.StringSliceVar(&s.sentinels, "sentinel", nil, "`address` of a Sentinel, to ask for the master; may be repeated")
	set.StringVar(&s.master, "master", "mymaster", "`name` of the master, as the Sentinels know it")
	set.StringSliceVar(&s.redlock, "redlock", nil, "`URL`s of independent servers, whose locks are taken by majority")
	set.BoolVar(&s.preferReplica, "prefer-replica", false, "read from replicas of the cluster or the master where there are some; they may lag behind")
}

// check returns an error for flags that contradict each other.
func (s *topologyFlags) check(given func(flag string) bool) error {
	elsewhere := given("url") || given("host") || given("port") || given("socket")
	switch {
	case s.cluster && len(s.sentinels) > 0, s.cluster && len(s.redlock) > 0, len(s.sentinels) > 0 && len(s.redlock) > 0:
		return usageErrorf("", "--cluster, --sentinel and --redlock exclude each other")
	case elsewhere && len(s.sentinels) > 0:
		return usageErrorf("", "--sentinel already says where: leave out --url, --host, --port and --socket")
	case elsewhere && len(s.redlock) > 0:
		return usageErrorf("", "--redlock already says where: leave out --url, --host, --port and --socket")
	case given("master") && len(s.sentinels) == 0:
		return usageErrorf("as in --sentinel 10.0.0.1:26379 --master orders", "--master without --sentinel")
	case s.preferReplica && !s.cluster && len(s.sentinels) == 0:
		return usageErrorf("", "--prefer-replica needs --cluster or --sentinel, which know the replicas")
	}
	return nil
}

// sentinelAddresses returns the addresses of the Sentinels, with the default port
// if an address has none.
func (s *topologyFlags) sentinelAddresses() []string {
	all := make([]string, len(s.sentinels))
	for i, addr := range s.sentinels {
		if all[i] = addr; !strings.Contains(addr, ":") {
			all[i] = addr + ":26379"
		}
	}
	return all
}

// mode returns how the servers belong together; "" means one server, or a mode that
// the server reports.
func (s *topologyFlags) mode() string {
	switch {
	case s.cluster:
		return "cluster"
	case len(s.sentinels) > 0:
		return "sentinel"
	case len(s.redlock) > 0:
		return "redlock"
	default:
		return ""
	}
}
