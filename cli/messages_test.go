package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestAFaultIsOneLineAndAHint(t *testing.T) {
	var out bytes.Buffer
	messages{to: &out}.fault(&exitError{code: 1, err: errors.New("read:\n\x1b[2J"), hint: "do\rthis"})
	want := "locktop: read:\\n\\x1b[2J (do\\rthis)\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestAFaultAsJSONIsOneLine(t *testing.T) {
	var out bytes.Buffer
	messages{to: &out, json: true}.fault(&exitError{code: 6, err: errors.New("read:\n\x1b[2J")})
	var back struct {
		Error string
		Exit  int
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Error != "read:\n\x1b[2J" || back.Exit != 6 {
		t.Errorf("%q came back as %+v, error %v", out.String(), back, err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %q", n, out.String())
	}
}
