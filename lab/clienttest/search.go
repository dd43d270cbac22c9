package clienttest

import "time"

// SearchVersion is the version of [Search] as JSON.
const SearchVersion = 1

// Search is the result of [Exhaust].
type Search struct {
	Version int            `json:"version"`
	Date    time.Time      `json:"date"`
	Locktop string         `json:"locktop"` // version; set by the caller
	Server  string         `json:"server"`
	TTL     Milliseconds   `json:"ttl_ms"`
	Faults  int            `json:"faults"` // at most, in an order
	Clients []SearchResult `json:"clients"`
}

// SearchResult is what was found of one client.
type SearchResult struct {
	Client Client   `json:"client"`
	Plays  []Played `json:"plays"`
}

// Played is what was found in the orders of one play: of the commands of two clients that make
// these requests, until a third one asks.
type Played struct {
	Play        string          `json:"play"`
	Title       string          `json:"title"`
	Unsupported string          `json:"unsupported,omitempty"` // why it did not run
	Error       string          `json:"error,omitempty"`       // why it came to no end; may hold text of the client
	Orders      []int           `json:"orders"`                // that ran, without a fault, with one, with two
	Left        int             `json:"left"`                  // that were known but did not run, because of the limit, an interrupt or a counterexample
	Same        int             `json:"same"`                  // left out because they differ only in commands on different servers
	Together    int             `json:"together"`              // commands that were not ordered: those of a request after its first four
	Own         int             `json:"own"`                   // commands that were not ordered, because a client sends them without a request, like a renewal
	Other       int             `json:"other"`                 // orders that could not be repeated: the client sent other commands
	Slow        int             `json:"slow"`                  // orders in which the machine was too slow for the TTL, in three tries
	Doubtful    int             `json:"doubtful"`              // orders in which something was found once, and not again
	Took        Milliseconds    `json:"took_ms"`
	Found       *Counterexample `json:"counterexample,omitempty"`
}

// Counterexample is an order in which a client breaks a promise: one with the fewest faults, and
// of these the fewest steps.
type Counterexample struct {
	Order   string `json:"order"`
	Faults  int    `json:"faults"`
	Steps   []Step `json:"steps"`
	Finding string `json:"finding"`
	Seen    int    `json:"seen"` // in so many of Runs
	Runs    int    `json:"runs"`
}

// Shortest returns the counterexample with the fewest faults, and of these the fewest steps; nil
// if there is none.
func (r SearchResult) Shortest() (best *Counterexample) {
	for _, p := range r.Plays {
		f := p.Found
		if f != nil && (best == nil || f.Faults < best.Faults || f.Faults == best.Faults && len(f.taken()) < len(best.taken())) {
			best = f
		}
	}
	return best
}

// taken returns the steps of the order.
func (c *Counterexample) taken() order {
	_, steps, _ := parseOrder(c.Order) // it was written by this program
	return steps
}
