package keyspace

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// sieve tells, of the keys that a walk meets, those that are worth reading. It
// asks of each key one thing at a time, in as few words as there are: its type,
// where that cannot be guessed from keys that were called alike, and a first
// piece of its value, as far as a format may still take it.
//
// A script on the server could do the same in one go. It was measured: to call
// a command from Lua takes the server as long as to get it from a client, all
// else waits while it runs, and many servers let nobody send scripts.
type sieve struct {
	*index
	atLeast  Confidence
	trusted  trust
	known    picture // of what is in it nothing is asked: somebody else follows it
	shapes   shapes
	blind    map[string]bool // types of which the server refuses to show a first piece
	suspects []suspect       // to be asked about next
	hidden   int             // keys that this user may not read
	enough   Confidence      // that needs no second sign
	hopes    int             // keys let through that had less to show
}

// suspect is a key that nothing rules out so far.
type suspect struct {
	ref
	told bool // the type is what the server said, no guess
}

// newSieve returns a sieve for the formats of an index. Of a stream there is no piece to
// be had that would tell more than its name.
func newSieve(x *index, atLeast Confidence) sieve {
	return sieve{
		index: x, atLeast: atLeast, enough: atLeast,
		shapes: make(shapes), blind: map[string]bool{"stream": true},
	}
}

// add takes in the names on a page.
func (s *sieve) add(names []string) {
	for _, name := range names {
		s.suspects = append(s.suspects, suspect{ref: ref{key: name}})
	}
}

// pinchSize is how many suspects are asked about in one go. While the server
// works on one pinch, the answers to another are looked at.
const pinchSize = 256

// pinches divides the suspects up. Each pinch sends through a link of its own.
func (s *sieve) pinches(open func() link) []*pinch {
	var all []*pinch
	for some := range slices.Chunk(s.suspects, pinchSize) {
		all = append(all, &pinch{sieve: s, link: open(), some: some})
	}
	return all
}

// settle takes in what came of the pinches, keeps those as suspects of which
// there is more to ask, and returns the keys to be read.
func (s *sieve) settle(all []*pinch) (promising []ref) {
	s.suspects = nil
	for _, p := range all {
		promising = append(promising, p.promising...)
		s.suspects = append(s.suspects, p.again...)
		s.hidden += p.unreadable
		s.hopes += p.hopes
		for typ := range p.deaf {
			s.blind[typ] = true
		}
		for _, q := range p.asked {
			if q.found != "" {
				s.shapes.learn(q.key, q.found)
			}
		}
	}
	return promising
}

// pinch is some suspects that are asked about in one go. It only reads from its
// sieve: several may be under way.
type pinch struct {
	*sieve
	link
	some       []suspect
	asked      []inquiry
	promising  []ref           // worth reading
	again      []suspect       // of which there is more to ask
	deaf       map[string]bool // types of which a first piece was refused
	unreadable int             // keys that this user may not read
	hopes      int             // of the promising, those that have less than enough to show
}

// inquiry is what is asked of a suspect: its type, or a piece of its value.
type inquiry struct {
	suspect
	kind  *redis.StatusCmd
	piece *redis.StringCmd
	found string // the type it turned out to have, or mixed if it was guessed wrong
}

// sift asks, and judges by the answers.
func (p *pinch) sift(ctx context.Context) error {
	p.line()
	err := p.ask(ctx, "look at keys", func(pipe redis.Pipeliner) {
		for i := range p.asked {
			p.asked[i].ask(ctx, pipe, p.sieve)
		}
	})
	if err != nil {
		return err
	}
	for i := range p.asked {
		q := &p.asked[i]
		if q.piece != nil {
			p.glanced(q)
		} else if err := p.typed(q); err != nil {
			return err
		}
	}
	return nil
}

// line lines up the questions.
func (p *pinch) line() {
	p.asked = make([]inquiry, 0, len(p.some))
	for _, k := range p.some {
		if _, known := p.known[k.key]; known || p.belongs(k.key) {
			continue
		}
		if k.typ == "" {
			k.typ = p.shapes.guess(k.key)
		}
		p.asked = append(p.asked, inquiry{suspect: k})
	}
}

// ask queues the next question about a suspect.
func (q *inquiry) ask(ctx context.Context, pipe redis.Pipeliner, s *sieve) {
	if q.typ == "" || !q.told && (s.blind[q.typ] || s.look(q.key, q.typ) != glance) {
		q.kind = pipe.Type(ctx, q.key)
		return
	}
	q.piece = firstPiece(ctx, q.ref)
	_ = pipe.Process(ctx, q.piece) // only queues: what goes wrong is known when it is sent
}

// typed goes on with a key whose type is known now. One that may not be asked
// for, or is gone, is out; to be allowed to ask for none is an error.
func (p *pinch) typed(q *inquiry) error {
	typ, err := q.kind.Result()
	switch {
	case forbidden(err):
		return fmt.Errorf("look at keys: %w", err)
	case hidden(err):
		p.unreadable++
		return nil
	case err != nil, typ == "none":
		return nil
	}
	q.found = typ
	k := ref{key: q.key, typ: typ}
	switch need := p.look(k.key, typ); {
	case need == whole, need == glance && p.blind[typ]:
		p.promising = append(p.promising, k)
	case need == glance:
		p.again = append(p.again, suspect{k, true})
	}
	return nil
}

// glanced goes on with a key of which a first piece has been seen.
func (p *pinch) glanced(q *inquiry) {
	piece, err := q.piece.Result()
	switch {
	case err == nil:
		atLeast := p.atLeast
		if p.trusted[q.key] != "" {
			atLeast = Possible
		}
		sure := p.promises(q.key, q.typ, piece, p.enough)
		if sure < atLeast {
			return
		}
		p.promising = append(p.promising, q.ref)
		if sure < p.enough {
			p.hopes++
		}
	case wrongType(err): // a wrong guess, or it has changed
		q.found = mixed
		p.again = append(p.again, suspect{ref: ref{key: q.key}})
	case forbidden(err):
		p.deaf = map[string]bool{q.typ: true}
		p.again = append(p.again, suspect{ref: ref{key: q.key}})
	case hidden(err):
		p.unreadable++
	}
}

// firstPiece is the command that shows the first piece of a value, in constant
// time and, but for a single huge element, in bounded space.
func firstPiece(ctx context.Context, k ref) *redis.StringCmd {
	switch k.typ {
	case "hash":
		return redis.NewStringCmd(ctx, "hrandfield", k.key)
	case "set":
		return redis.NewStringCmd(ctx, "srandmember", k.key)
	case "zset":
		return redis.NewStringCmd(ctx, "zrandmember", k.key)
	case "list":
		return redis.NewStringCmd(ctx, "lindex", k.key, 0)
	default:
		return redis.NewStringCmd(ctx, "getrange", k.key, 0, glanceBytes-1)
	}
}
