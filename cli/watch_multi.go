package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
	"locktop/tui"
)

// newsEvery is the time between two looks at what the followers of several
// servers have learnt.
const newsEvery = 20 * time.Millisecond

// multiEventSource is what happens on several servers, and to them.
type multiEventSource struct {
	fleet  tui.Source
	last   keyspace.Snapshot
	addrs  []string        // of the servers, at the last look
	down   map[string]bool // those that did not answer
	silent bool            // none of them did
}

// Next waits for what happens next.
func (n *multiEventSource) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(newsEvery):
	}
	snap, err := n.fleet.Snapshot(ctx)
	if ctx.Err() != nil { // then servers have not had the time to answer
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, n.onLost(err), err
	}
	n.last = snap
	return snap.Events, slices.Concat(n.onBack(), n.onMoved(snap.Nodes), n.nodeChanges(snap.Nodes), snap.Notices), nil
}

// Known is the picture that the last look gave.
func (n *multiEventSource) Known() keyspace.Snapshot { return n.last }

// onLost says once that no server answers.
func (n *multiEventSource) onLost(err error) []keyspace.Notice {
	if n.silent {
		return nil
	}
	n.silent = true
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerLost, Text: err.Error()}}
}

// onBack says that one answers again.
func (n *multiEventSource) onBack() []keyspace.Notice {
	if !n.silent {
		return nil
	}
	n.silent = false
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerBack}}
}

// onMoved says that other servers are looked at than before.
func (n *multiEventSource) onMoved(nodes []keyspace.Node) []keyspace.Notice {
	was := n.addrs
	n.addrs = nil
	for _, node := range nodes {
		n.addrs = append(n.addrs, node.Addr)
	}
	came, left := without(n.addrs, was), without(was, n.addrs)
	if len(was) == 0 || len(came)+len(left) == 0 {
		return nil
	}
	text := strings.Join(came, ", ") + " is looked at now, too"
	switch {
	case len(left) > 0 && len(came) > 0:
		text = fmt.Sprintf("%s has taken the place of %s", strings.Join(came, ", "), strings.Join(left, ", "))
	case len(left) > 0:
		text = strings.Join(left, ", ") + " is not looked at any more"
	}
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerFailover, Text: text}}
}

// nodeChanges says once of each server that it does not answer, while others do,
// and that it does again.
func (n *multiEventSource) nodeChanges(nodes []keyspace.Node) []keyspace.Notice {
	var all []keyspace.Notice
	for _, node := range nodes {
		if node.Up == !n.down[node.Addr] {
			continue
		}
		n.down[node.Addr] = !node.Up
		text := node.Addr + " answers again"
		if !node.Up {
			text = node.Addr + " does not answer: " + node.Trouble
		}
		all = append(all, keyspace.Notice{At: time.Now(), Kind: keyspace.WatchModeChanged, Node: node.Addr, Text: text})
	}
	return all
}

// without returns what of all is not in others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}
