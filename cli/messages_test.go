package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"locktop/internal/check"
)

func TestAFaultIsOneLineAndAHint(t *testing.T) {
	var out bytes.Buffer
	messages{to: &out}.fault(&exitError{code: 1, err: errors.New("read:\n\x1b[2J"), hint: "do\rthis"})
	want := "locktop: read:\\n\\x1b[2J (do\\rthis)\n"
	check.True(t, out.String() == want, "got %q, want %q", out.String(), want)
}

func TestAFaultAsJSONIsOneLine(t *testing.T) {
	var out bytes.Buffer
	messages{to: &out, json: true}.fault(&exitError{code: 6, err: errors.New("read:\n\x1b[2J")})
	var back struct {
		Error string
		Exit  int
	}
	err := json.Unmarshal(out.Bytes(), &back)
	check.True(t, err == nil && back.Error == "read:\n\x1b[2J" && back.Exit == 6, "%q came back as %+v, error %v", out.String(), back, err)
	n := strings.Count(out.String(), "\n")
	check.True(t, n == 1, "%d lines: %q", n, out.String())
}
