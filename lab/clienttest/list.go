package clienttest

import "time"

// Tests returns all tests, in the order of the card.
func Tests() []Test {
	return []Test{
		{
			Name: "hot-key", Title: "one holder at a time", takes: 4 * time.Second, alone: true, run: hotKey,
			About: "Eight clients contend for one lock without a pause. A failure: two were inside at once, within their leases.",
		},
		{
			Name: "crash", Title: "a holder crashes", ttl: 1500 * time.Millisecond, takes: 3 * time.Second, run: crash,
			About: "A holder is killed. A failure: the next client does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "lease-end", Title: "leases of 2.5 s, 1.5 s and 300 ms run out", takes: 6 * time.Second, run: leaseEnd,
			About: "A holder is frozen until its lease ends, and another client waits, with each of these TTLs. " +
				"A failure: the other client gets the lock before the end of the lease by valid_ms, or later than that and a margin of 1 s.",
		},
		{
			Name: "freeze", Title: "a holder is frozen longer than its TTL", ttl: 1500 * time.Millisecond, takes: 4 * time.Second, run: freeze,
			About: "A holder gets no CPU for longer than its lease, while another client acquires the lock. " +
				"A failure: the first client is not told when it runs again, and its release reports success. " +
				"No lock can prevent that both work at the same time; fences make the late write harmless.",
		},
		{
			Name: "late-unlock", Title: "the late release of a frozen holder", takes: 4 * time.Second, run: lateUnlock,
			About: "As freeze, but a third client asks after the late release. A failure: it gets the lock while the second client is inside.",
		},
		{
			Name: "late-extend", Title: "the late renewal of a frozen holder", takes: 5 * time.Second, needs: needsRenewal, run: lateExtend,
			About: "As freeze, but the first client extends its lease, or its library renews it, while the second client is inside. " +
				"A failure: the extension reports success, the second client loses the lock, or the lock does not become free when the second client crashes.",
		},
		{
			Name: "relock", Title: "a holder that lost its lock locks again", takes: 4 * time.Second, run: relock,
			About: "As freeze, but the first client locks again instead of a release. A failure: it gets the lock while the second client is inside.",
		},
		{
			Name: "second-hold", Title: "the late release of a first hold during a second one", ttl: 1500 * time.Millisecond, takes: 4 * time.Second, needs: needsTokens, run: secondHold,
			About: "As freeze, but the second client releases, and the first one locks again before it releases its lost hold. A failure: that release frees its second hold.",
		},
		{
			Name: "partition", Title: "a holder is cut off for longer than its TTL", takes: 5 * time.Second, run: partition,
			About: "No packet passes between a holder and the server, while another client acquires the lock. " +
				"A failure: the library renews, so that the holder does not go by the time of its lease, and does not tell it of the loss before the network works again.",
		},
		{
			Name: "lost-acquire", Title: "the reply to an acquire is lost", ttl: 1500 * time.Millisecond, takes: 4 * time.Second, run: lostAcquire,
			About: "The server grants a lock, but the connection breaks before the reply arrives, half a TTL later. The client still asks. " +
				"A failure: it gets the lock with a lease that is longer than that on the server, or another client does not get the lock at the end of the lease and a margin of 1 s.",
		},
		{
			Name: "slow-acquire", Title: "the reply to an acquire is late", ttl: 1500 * time.Millisecond, takes: 4 * time.Second, run: slowAcquire,
			About: "The reply to an acquire takes 500 ms, or 200 ms if the client does not wait that long. Then the client is frozen. " +
				"A failure: another client gets the lock before the end of the lease by valid_ms.",
		},
		{
			Name: "lost-release", Title: "the reply to a release is lost", takes: 4 * time.Second, run: lostRelease,
			About: "The server releases a lock, but the connection breaks before the reply arrives, when another client has acquired the lock. " +
				"A failure: that client gets it later than the TTL and a margin of 1 s, or a repeated release deletes its lock.",
		},
		{
			Name: "between-acquire", Title: "a crash between two commands of an acquire", takes: 3 * time.Second, run: betweenAcquire,
			About: "If an acquire of a free lock takes several commands, a client is killed before each but the first. A failure: the next client does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "between-wait", Title: "a crash between two commands of a waiter", ttl: 1500 * time.Millisecond, takes: 8 * time.Second, run: betweenWait,
			About: "A waiter is killed before its second command after the release, others before the third to the fifth. " +
				"A failure: the next client does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "between-release", Title: "a freeze between two commands of a release", takes: 3 * time.Second, run: betweenRelease,
			About: "If a release takes several commands, a client is frozen before each but the first, for longer than its lease, while another client acquires the lock. " +
				"A failure: the rest of the release deletes the lock of that client.",
		},
		{
			Name: "waiter-killed", Title: "a waiter is killed", ttl: 1500 * time.Millisecond, takes: 2 * time.Second, run: waiterKilled,
			About: "The first of two waiters is killed, then the holder releases. A failure: the other waiter does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "waiter-gives-up", Title: "waiters give up", ttl: 4 * time.Second, takes: 3 * time.Second, run: waiterGivesUp,
			About: "Two clients ask for a lock for 300 ms each, one after the other, and then the holder releases. " +
				"A failure: the second one gets the lock beside the holder, the holder loses it, or the second one does not get it when it asks again, within half a TTL.",
		},
		{
			Name: "cancel", Title: "an acquire is cancelled", ttl: 6 * time.Second, takes: 3 * time.Second, needs: needsCancel, run: cancel,
			About: "A waiter is cancelled, and then a request whose reply is under way. " +
				"A failure: the client does not answer it within 1 s, or another client does not get the lock within half a TTL after the release or the answer.",
		},
		{
			Name: "wait-limit", Title: "a command arrives after its client gave up", takes: 4 * time.Second, run: waitLimit,
			About: "The command of an acquire that may wait for 300 ms reaches the server when the client has given up. " +
				"A failure: another client does not get the lock within the TTL and a margin of 1 s. The card tells if it gets it later than half a TTL, because nobody had the lock until then.",
		},
		{
			Name: "late-grant", Title: "a freeze between the grant and the answer", takes: 4 * time.Second, run: lateGrant,
			About: "The server grants a lock, and the client is frozen for longer than its TTL before it reads the reply, while another client acquires the lock. " +
				"A failure: the first client gets a valid lease, or its release frees the lock of the other.",
		},
		{
			Name: "unlock-retry", Title: "a late retry of a release", ttl: 4 * time.Second, takes: 2 * time.Second, run: unlockRetry,
			About: "The reply to a release is lost, and the client locks again before the second try of its release reaches the server. A failure: that try frees the second hold.",
		},
		{
			Name: "restart", Title: "a client starts with the name of the holder", ttl: 4 * time.Second, takes: 2 * time.Second, run: restart,
			About: "A holder is frozen, and a new process with the same name asks for the lock before the TTL ends. A failure: it gets the lock, or the holder loses it.",
		},
		{
			Name: "short-ttl", Title: "a TTL of 300 ms", ttl: short, takes: 2 * time.Second, alone: true, run: shortTTL,
			About: "A client works for three times the TTL, and its lease is renewed, or for a third of it, if nothing renews. " +
				"A failure: it loses the lock, another client gets it meanwhile, or a waiter does not get it after the release.",
		},
		{
			Name: "script-flush", Title: "SCRIPT FLUSH", takes: 2 * time.Second, run: scriptFlush,
			About: "The server forgets its scripts before an acquire and before a release. A failure: an error of the client, or a lock that is not released.",
		},
		{
			Name: "flushall", Title: "FLUSHALL", takes: 5 * time.Second, run: flushAll,
			About: "The server loses all keys while a client holds the lock. No lock prevents that another client gets it. " +
				"A failure: the holder is not told, and its release reports success or deletes the lock of the next holder.",
		},
		{
			Name: "failover", Title: "failover to a replica in sync", ttl: 6 * time.Second, takes: 3 * time.Second, layout: replicated, run: failover,
			About: "The master crashes after the replica has received the lock, and the replica takes its place. It knows no scripts. " +
				"A failure: another client gets the lock while the first is inside, or the first one, connected again, cannot release. A lock whose state is only in keys survives this.",
		},
		{
			Name: "failover-behind", Title: "failover to a replica that is behind", takes: 3 * time.Second, layout: replicated, run: failoverBehind,
			About: "The replica has not received the lock when it takes the place of its master. Replication is asynchronous, so no lock on one server survives this without WAIT. " +
				"The card tells what happened, and does not count it as a failure.",
		},
		{
			Name: "nodes-2-down", Title: "2 of 5 nodes are down", ttl: 4 * time.Second, takes: 4 * time.Second, layout: fiveNodes, needs: kinds("redlock"), run: twoDown,
			About: "A majority of the nodes is left. A failure: no client gets the lock, or two clients do.",
		},
		{
			Name: "nodes-3-down", Title: "3 of 5 nodes are down", ttl: 6 * time.Second, takes: 4 * time.Second, layout: fiveNodes, needs: kinds("redlock"), run: threeDown,
			About: "A minority of the nodes is left, and a client asks it. Then one node comes back. " +
				"A failure: the client gets the lock, or another one does not get it from the three nodes within half a TTL, because the minority still has the first request.",
		},
		{
			Name: "nodes-lost", Title: "3 of 5 nodes lose a lock", takes: 3 * time.Second, layout: fiveNodes, needs: kinds("redlock"), run: nodesLost,
			About: "Three of five nodes lose all keys while a client holds the lock. No lock prevents that another client gets it. " +
				"A failure: an extension reports success although another client can get the lock, or the holder is not told, and its release reports success.",
		},
		{
			Name: "node-empty", Title: "a node comes back without its data", takes: 3 * time.Second, layout: fiveNodes, needs: kinds("redlock"), run: nodeEmpty,
			About: "A client gets the lock on three of five nodes. The other two come back, and one of the three comes back without its data. Redlock has no answer to this: " +
				"a node must stay away for a TTL after it lost its data. The card tells what happened, and does not count it as a failure.",
		},
		{
			Name: "node-frozen", Title: "a node is frozen", ttl: 4 * time.Second, takes: 4 * time.Second, layout: fiveNodes, needs: kinds("redlock"), run: nodeFrozen,
			About: "One of five nodes does not answer. A failure: no client gets the lock, or two clients do.",
		},
		{
			Name: "nodes-slow", Title: "all nodes answer late", ttl: 1500 * time.Millisecond, takes: 4 * time.Second, layout: fiveNodes, needs: kinds("redlock"), run: nodesSlow,
			About: "As slow-acquire, with replies of five nodes that take 200 ms each, or 60 ms. A failure: another client gets the lock before the end of the lease by valid_ms.",
		},
		{
			Name: "renewal", Title: "the work takes longer than the TTL", ttl: 1500 * time.Millisecond, takes: 6 * time.Second, needs: needsRenewal, run: renewal,
			About: "A client works for three times its TTL, and its lease is renewed. A failure: another client gets the lock meanwhile, or a renewal after the release takes it away from the next holder.",
		},
		{
			Name: "renewal-lost", Title: "renewals after the lock is lost", takes: 6 * time.Second, needs: needsRenewal, run: renewalLost,
			About: "The key of a renewed lock is deleted. A failure: a renewal creates it again, an extension of the lost lock succeeds, " +
				"the holder is not told, or a renewal takes the lock away from the next holder.",
		},
		{
			Name: "waiters", Title: "many waiters for one lock", takes: 12 * time.Second, alone: true, run: waiters,
			About: "A hundred clients (--waiters) wait for one lock all the time. The card tells what a hand-off costs and how the waits differ. " +
				"A failure: a client never gets the lock while the others get it 20 times on average, or two are inside at once.",
		},
		{
			Name: "reentrant", Title: "a client locks twice", ttl: 4 * time.Second, takes: 3 * time.Second, needs: kinds("reentrant"), run: reentrant,
			About: "A client locks what it has, and releases twice. A failure: another client gets the lock after the first release, or does not get it after the second, within half a TTL.",
		},
		{
			Name: "reentrant-lost", Title: "lost replies to a client that locks twice", ttl: 4 * time.Second, takes: 4 * time.Second, needs: kinds("reentrant"), run: reentrantLost,
			About: "The replies to a second acquire, and to a first release, are lost, and the connection breaks. " +
				"A failure: the requests report success, but the lock is free after one release, or is not free after two.",
		},
		{
			Name: "readers", Title: "readers and a writer", takes: 2 * time.Second, needs: kinds("rw"), run: readers,
			About: "Two readers share the lock, and one of them releases. A failure: a writer gets the lock while the other reads, or a reader does not get it beside another.",
		},
		{
			Name: "readers-crash", Title: "the leases of readers run out", takes: 4 * time.Second, needs: kinds("rw"), run: readersCrash,
			About: "Two readers, the second one half a TTL after the first, are frozen. A failure: a writer gets the lock within the lease of either, or not within the TTL of the second and a margin of 1 s.",
		},
		{
			Name: "writer-crash", Title: "a writer crashes after a reader was refused", ttl: 1500 * time.Millisecond, takes: 3 * time.Second, needs: kinds("rw"), run: writerCrash,
			About: "A reader asks for the lock of a writer, and the writer is killed. A failure: the reader gets the lock, or another writer does not get it within the TTL and a margin of 1 s.",
		},
		{
			Name: "permits", Title: "the permits of a semaphore", takes: time.Second, needs: kinds("semaphore"), run: permits,
			About: "Three clients ask for two permits. A failure: all three are inside, or the third does not get the permit that another gives back.",
		},
		{
			Name: "permits-nodes", Title: "the permits of a semaphore on 5 nodes", ttl: 6 * time.Second, takes: 2 * time.Second, layout: fiveNodes, needs: kinds("semaphore", "redlock"), run: permitsOnNodes,
			About: "Three clients ask for two permits, and each reaches another three of five nodes. A failure: all three are inside.",
		},
		{
			Name: "clock", Title: "a client with a wrong clock", takes: 2 * time.Second, needs: needsClock, run: wrongClock,
			About: "The clock of a client is ahead, and then behind, by more than the TTL. A failure: it gets a lock that another client has, or another client gets its lock.",
		},
	}
}

// Reasons why a client does not have what a test needs.

func needsRenewal(p profile) string {
	if p.renewed() {
		return ""
	}
	return "hello says that the library does not renew, and the client answers extend with an error"
}

func needsTokens(p profile) string {
	if p.has("reentrant") {
		return "hello names the kind reentrant, whose holds belong to one client"
	}
	return ""
}

// kinds returns the reason that hello does not name one of these kinds.
func kinds(all ...string) func(profile) string {
	return func(p profile) string {
		for _, k := range all {
			if !p.has(k) {
				return "hello does not name the kind " + k
			}
		}
		return ""
	}
}

func needsCancel(p profile) string {
	if p.Hello.Cancels {
		return ""
	}
	return "hello does not say that the client can stop waiting"
}

func needsClock(p profile) string {
	if p.Hello.Clock {
		return ""
	}
	return "hello does not say that the client has a clock that can be set"
}
