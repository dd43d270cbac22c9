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
	if err := f.refresh(t.Context(), nil, heard{}); err != nil {
		t.Fatal(err)
	}
	if f.offset != 0 {
		t.Errorf("nothing was asked, and the server's clock is %v off", f.offset)
	}
}
