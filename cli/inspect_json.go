package cli

import "locktop/keyspace"

// jsonInspection is the output of `inspect --json`.
type jsonInspection struct {
	At string `json:"at"`
	jsonLock
	Why     []string   `json:"why"`
	Votes   []jsonVote `json:"votes,omitempty"`
	Raw     []jsonRaw  `json:"raw"`
	Release string     `json:"release,omitempty"`  // locktop command that force-releases the lock
	Command string     `json:"command"`            // redis-cli command that does so safely; empty: none
	NoHands string     `json:"no_hands,omitempty"` // reason why there is none
}

// jsonRaw is a key on one server, with the part of its value that was read.
type jsonRaw struct {
	Node     string       `json:"node"`
	Key      string       `json:"key"`
	KeyB64   string       `json:"key_b64,omitempty"`
	Type     string       `json:"type"`
	TTLms    int64        `json:"ttl_ms"`
	Len      int64        `json:"len"`
	Value    *string      `json:"value,omitempty"`
	ValueB64 string       `json:"value_b64,omitempty"`
	Members  []jsonMember `json:"members,omitempty"`
}

type jsonMember struct {
	Name  string  `json:"name"`
	Value string  `json:"value,omitempty"`
	Score float64 `json:"score,omitempty"`
}

func inspectionOf(c *connFlags, g inspection, l keyspace.Lock) jsonInspection {
	j := jsonInspection{At: stamp(g.At), jsonLock: lockOf(l, g.At, g.findings[l.ID()]), Why: []string{}, Raw: []jsonRaw{}}
	for _, why := range l.Evidence {
		j.Why = append(j.Why, text(why))
	}
	for _, v := range l.Votes {
		j.Votes = append(j.Votes, jsonVote{v.Node, text(v.Token), ttl(v.Expires, g.At), v.Unreachable})
	}
	for _, r := range g.raw {
		j.Raw = append(j.Raw, rawOf(r))
	}
	r := c.remedyFor(l)
	j.Release, j.Command, j.NoHands = r.release, r.redisCLI, r.why
	return j
}

func rawOf(r rawKey) jsonRaw {
	e := r.entry
	j := jsonRaw{Node: r.node, Key: text(e.Key), KeyB64: binary(e.Key), Type: e.Type, TTLms: ttl(e.Expires, e.Now), Len: e.Len}
	if e.Type == "string" {
		j.Value, j.ValueB64 = new(text(e.Value)), binary(e.Value)
	}
	for _, m := range e.Members {
		j.Members = append(j.Members, jsonMember{text(m.Name), text(m.Value), m.Score})
	}
	return j
}
