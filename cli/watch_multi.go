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

// newsEvery is the time between two snapshots of several servers.
const newsEvery = 20 * time.Millisecond

// multiEventSource is the source of events of several servers.
type multiEventSource struct {
	fleet  tui.Source
	last   keyspace.Snapshot
	addrs  []string        // of the servers in the last snapshot
	down   map[string]bool // servers that did not answer
	silent bool            // no server answered
}

// Next waits newsEvery and returns the events and notices since the last call.
func (n *multiEventSource) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(newsEvery):
	}
	snap, err := n.fleet.Snapshot(ctx)
	if ctx.Err() != nil { // the servers did not have time to answer
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, n.onLost(err), err
	}
	n.last = snap
	return snap.Events, slices.Concat(n.onBack(), n.onMoved(snap.Nodes), n.nodeChanges(snap.Nodes), snap.Notices), nil
}

// Known returns the last snapshot.
func (n *multiEventSource) Known() keyspace.Snapshot { return n.last }

// onLost returns a notice once when no server answers.
func (n *multiEventSource) onLost(err error) []keyspace.Notice {
	if n.silent {
		return nil
	}
	n.silent = true
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerLost, Text: err.Error()}}
}

// onBack returns a notice when a server answers again after onLost.
func (n *multiEventSource) onBack() []keyspace.Notice {
	if !n.silent {
		return nil
	}
	n.silent = false
	return []keyspace.Notice{{At: time.Now(), Kind: keyspace.ServerBack}}
}

// onMoved returns a notice if the list of servers has changed.
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

// nodeChanges returns a notice for each server that stops answering while others
// answer, and for each server that answers again.
func (n *multiEventSource) nodeChanges(nodes []keyspace.Node) []keyspace.Notice {
	var all []keyspace.Notice
	for _, node := range nodes {
		if node.Up == !n.down[node.Addr] {
			continue
		}
		n.down[node.Addr] = !node.Up
		text := node.Addr + " answers again"
		if !node.Up {
			text = node.Addr + " does not answer: " + node.Error
		}
		all = append(all, keyspace.Notice{At: time.Now(), Kind: keyspace.WatchModeChanged, Node: node.Addr, Text: text})
	}
	return all
}

// without returns the elements of all that are not in others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}
