package keyspace

import (
	"testing"
	"time"
)

// What the server's clock said to another question, a while ago, says nothing of
// the difference of the clocks now.
func TestClocksAreComparedOnlyWhenTheServerWasAsked(t *testing.T) {
	f := NewWatcher(&Scanner{})
	f.reader.now = time.Now().Add(-time.Hour)
	if err := f.refreshKeys(t.Context(), nil, changes{}); err != nil {
		t.Fatal(err)
	}
	if f.clockOffset != 0 {
		t.Errorf("nothing was asked, and the server's clock is %v off", f.clockOffset)
	}
}
