package keyspace

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// sifter asks about the keys on some pages of a walk, and keeps those that are
// worth reading. It is for one goroutine.
type sifter struct {
	*sieve
	link
	asked      []inquiry
	again      []suspect       // of which there is more to ask
	learnt     shapes          // since the sieve has settled
	deaf       map[string]bool // types of which a first piece was refused since then
	promising  []ref           // worth reading
	unreadable int             // keys that this user may not read
	astray     int             // keys of a cluster that no node has owned up to
	hopes      int             // of the promising, those that have less than enough to show
}

// pinch is how many keys a sifter asks about in one go.
const pinch = 256

// suspect is a key that nothing rules out so far.
type suspect struct {
	ref
	shape shape
	told  bool // the type is what the server said, no guess
}

// inquiry is what is asked of a suspect: its type, or a piece of its value.
type inquiry struct {
	suspect
	kind  *redis.StatusCmd
	piece *redis.StringCmd
}

// run sifts names until there are no more.
func (s *sifter) run(ctx context.Context, names <-chan []string) error {
	for some := range names {
		if err := s.sift(ctx, some); err != nil {
			return err
		}
	}
	for len(s.again) > 0 {
		if err := s.sift(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// sift asks about keys, with what there still was to ask about those before them,
// and judges by the answers.
func (s *sifter) sift(ctx context.Context, names []string) error {
	s.line(names)
	if len(s.asked) == 0 {
		return nil
	}
	err := s.ask(ctx, "look at keys", func(pipe redis.Pipeliner) {
		for i := range s.asked {
			s.inquire(ctx, pipe, &s.asked[i])
		}
	})
	if err != nil {
		return err
	}
	for i := range s.asked {
		q := &s.asked[i]
		if q.piece != nil {
			s.glanced(q)
		} else if err := s.typed(q); err != nil {
			return err
		}
	}
	return nil
}

// line lines up the questions.
func (s *sifter) line(names []string) {
	clear(s.asked)
	s.asked = s.asked[:0]
	for _, k := range s.again {
		s.asked = append(s.asked, inquiry{suspect: k})
	}
	s.again = s.again[:0]
	for _, name := range names {
		if _, known := s.known[name]; known || s.belongs(name) {
			continue
		}
		k := suspect{ref: ref{key: name}, shape: shapeOf(name)}
		k.typ = s.guess(k.shape)
		s.asked = append(s.asked, inquiry{suspect: k})
	}
}

// guess returns the type that keys of a shape should have, "" if there is no
// telling.
func (s *sifter) guess(of shape) string {
	if _, fresh := s.learnt[of]; fresh {
		return s.learnt.guess(of)
	}
	return s.shapes.guess(of)
}

// inquire queues the next question about a suspect.
func (s *sifter) inquire(ctx context.Context, pipe redis.Pipeliner, q *inquiry) {
	if q.typ == "" || !q.told && (s.shut(q.typ) || s.look(q.key, q.typ) != glance) {
		q.kind = pipe.Type(ctx, q.key)
		return
	}
	q.piece = firstPiece(ctx, q.ref)
	_ = pipe.Process(ctx, q.piece) // only queues: what goes wrong is known when it is sent
}

// shut reports whether the server refuses to show first pieces of a type.
func (s *sifter) shut(typ string) bool { return s.blind[typ] || s.deaf[typ] }

// typed goes on with a key whose type is known now. One that may not be asked
// for, or is gone, is out; to be allowed to ask for none is an error.
func (s *sifter) typed(q *inquiry) error {
	typ, err := q.kind.Result()
	switch {
	case forbidden(err):
		return fmt.Errorf("look at keys: %w", err)
	case hidden(err):
		s.unreadable++
		return nil
	case redirected(err):
		s.astray++
		return nil
	case err != nil, typ == "none":
		return nil
	}
	s.learn(q.shape, typ)
	q.typ, q.told = typ, true
	switch need := s.look(q.key, typ); {
	case need == whole, need == glance && s.shut(typ):
		s.promising = append(s.promising, q.ref)
	case need == glance:
		s.again = append(s.again, q.suspect)
	}
	return nil
}

// learn takes in what type a key of a shape had.
func (s *sifter) learn(of shape, typ string) {
	if s.shapes[of] != mixed && s.guess(of) != typ {
		s.learnt.learn(of, typ)
	}
}

// glanced goes on with a key of which a first piece has been seen.
func (s *sifter) glanced(q *inquiry) {
	piece, err := q.piece.Result()
	switch {
	case err == nil:
		atLeast := s.atLeast
		if s.trusted[q.key] != "" {
			atLeast = Possible
		}
		sure := s.promises(q.key, q.typ, piece, s.enough)
		if sure < atLeast {
			return
		}
		s.promising = append(s.promising, q.ref)
		if sure < s.enough {
			s.hopes++
		}
	case wrongType(err): // a wrong guess, which its type will tell, or it has changed
		s.askAgain(q)
	case forbidden(err):
		s.deaf[q.typ] = true
		s.askAgain(q)
	case hidden(err):
		s.unreadable++
	case redirected(err):
		s.astray++
	}
}

// askAgain has the server say the type of a key of which no piece could be had.
func (s *sifter) askAgain(q *inquiry) {
	s.again = append(s.again, suspect{ref: ref{key: q.key}, shape: q.shape})
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
