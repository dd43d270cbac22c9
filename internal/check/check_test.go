package check

import (
	"errors"
	"fmt"
	"testing"
)

// spy notes the messages of checks.
type spy struct {
	testing.TB
	said string
}

func (s *spy) Helper()                   {}
func (s *spy) Fatal(a ...any)            { s.said = fmt.Sprint(a...) }
func (s *spy) Errorf(f string, a ...any) { s.said = fmt.Sprintf(f, a...) }
func (s *spy) Fatalf(f string, a ...any) { s.Errorf(f, a...) }

func TestAFailedCheckTellsWhatItGotAndWanted(t *testing.T) {
	lost, held := errors.New("lost"), errors.New("held")
	for _, c := range []struct {
		check func(*spy)
		want  string
	}{
		{func(s *spy) { NoError(s, lost, "client %d", 3) }, "client 3: lost"},
		{func(s *spy) { NoError(s, nil) }, ""},
		{func(s *spy) { Must(3, lost)(s) }, "lost"},
		{func(s *spy) { Equal(s, Must(3, nil)(s), 3) }, ""},
		{func(s *spy) { ErrorIs(s, lost, held) }, "got lost, want held"},
		{func(s *spy) { ErrorIs(s, lost, nil) }, "got lost, want <nil>"},
		{func(s *spy) { ErrorIs(s, fmt.Errorf("client 3: %w", lost), lost) }, ""},
		{func(s *spy) { ErrorContains(s, nil, "lo") }, `got <nil>, want an error with "lo"`},
		{func(s *spy) { ErrorContains(s, held, "lo") }, `got held, want an error with "lo"`},
		{func(s *spy) { ErrorContains(s, lost, "lo") }, ""},
		{func(s *spy) { Contains(s, "held", "lo", "text") }, "text: no \"lo\" in\nheld"},
		{func(s *spy) { Contains(s, "lost", "lo") }, ""},
		{func(s *spy) { True(s, false, "not %d", 3) }, "not 3"},
		{func(s *spy) { True(s, true, "not %d", 3) }, ""},
		{func(s *spy) { Require(s, false, "not %d", 3) }, "not 3"},
		{func(s *spy) { Require(s, true, "not %d", 3) }, ""},
		{func(s *spy) { False(s, true, "not %d", 3) }, "not 3"},
		{func(s *spy) { False(s, false, "not %d", 3) }, ""},
		{func(s *spy) { Equal(s, 1, 2, "keys") }, "keys: got 1, want 2"},
		{func(s *spy) { Equal(s, 2, 2) }, ""},
		{func(s *spy) { DeepEqual(s, []int{1}, []int{2}) }, "\ngot  [1]\nwant [2]"},
		{func(s *spy) { DeepEqual(s, []int{2}, []int{2}) }, ""},
		{func(s *spy) { Between(s, 0, 1, 2) }, "got 0, want 1 to 2"},
		{func(s *spy) { Between(s, 3, 1, 2) }, "got 3, want 1 to 2"},
		{func(s *spy) { Between(s, 1, 1, 1) }, ""},
		{func(s *spy) { AtMost(s, 3, 2) }, "got 3, want at most 2"},
		{func(s *spy) { AtMost(s, 2, 2) }, ""},
		{func(s *spy) { AtLeast(s, 1, 2) }, "got 1, want at least 2"},
		{func(s *spy) { AtLeast(s, 2, 2) }, ""},
		{func(s *spy) { Part[string](s, "../../docs/config.schema.json", "properties/colour") }, "properties/colour of ../../docs/config.schema.json is <nil>"},
		{func(s *spy) {
			Equal(s, Part[string](s, "../../docs/config.schema.json", "properties/contexts/type"), "object")
		}, ""},
	} {
		s := &spy{}
		c.check(s)
		Equal(t, s.said, c.want)
	}
}
