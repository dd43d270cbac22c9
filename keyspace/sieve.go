package keyspace

// sieve tells, of the keys that a walk meets, those that are worth reading. It
// asks of each key one thing at a time, in as few words as there are: its type,
// where that cannot be guessed from keys that were called alike, and a first
// piece of its value, as far as a format may still take it.
//
// A script on the server could do the same in one go. It was measured: to call
// a command from Lua takes the server as long as to get it from a client, all
// else waits while it runs, and many servers let nobody send scripts.
//
// The asking is done by its sifters, several at a time. They only read from their
// sieve, until it settles what they have learnt.
type sieve struct {
	*index
	atLeast Confidence
	trusted trust
	known   picture // of what is in it nothing is asked: somebody else follows it
	shapes  shapes
	blind   map[string]bool // types of which the server refuses to show a first piece
	hidden  int             // keys that this user may not read
	astray  int             // keys of a cluster that no node has owned up to
	enough  Confidence      // that needs no second sign
	hopes   int             // keys let through that had less to show
}

// newSieve returns a sieve for the formats of an index. Of a stream there is no piece to
// be had that would tell more than its name.
func newSieve(x *index, atLeast Confidence) sieve {
	return sieve{
		index: x, atLeast: atLeast, enough: atLeast,
		shapes: make(shapes), blind: map[string]bool{"stream": true},
	}
}

// sifters returns so many sifters. Each asks through a link of its own.
func (s *sieve) sifters(n int, open func() link) []*sifter {
	all := make([]*sifter, n)
	for i := range all {
		all[i] = &sifter{sieve: s, link: open(), learnt: make(shapes), deaf: make(map[string]bool)}
	}
	return all
}

// settle takes in what sifters have learnt.
func (s *sieve) settle(all []*sifter) {
	for _, p := range all {
		s.hidden += p.unreadable
		s.astray += p.astray
		s.hopes += p.hopes
		for typ := range p.deaf {
			s.blind[typ] = true
		}
		for of, typ := range p.learnt {
			s.shapes.learn(of, typ)
		}
	}
}
