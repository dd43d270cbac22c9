// Package htmlpage builds HTML pages that need no other file: the report of a load and
// the card of a certification.
//
// It does not use html/template, because with that package the linker keeps every exported
// method, which is a third of the program.
package htmlpage

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
	"unicode"
)

// Style is the style sheet of all pages.
//
//go:embed page.css
var Style string

// Page is the text of a page. Its zero value is not a page: use [New]. It is not safe for
// concurrent use.
type Page struct{ text strings.Builder }

// New begins a page. Its style sheets are [Style] and extra.
func New(title, extra string) *Page {
	var p Page
	p.Put(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width"/>`)
	p.Put(`<title>%v</title>`, title)
	p.text.WriteString("<style>\n" + Style + extra + "</style></head><body>\n")
	return &p
}

// Put writes a line. The format may use only %v. All arguments are escaped: they are text,
// and characters that are not printed, or change the direction of the text, appear as �.
func (p *Page) Put(format string, args ...any) {
	for i, a := range args {
		args[i] = html.EscapeString(strings.Map(printed, fmt.Sprint(a)))
	}
	fmt.Fprintf(&p.text, format+"\n", args...)
}

func printed(r rune) rune {
	if r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Bidi_Control, r) {
		return r
	}
	return unicode.ReplacementChar
}

// Close ends the page and writes it to w.
func (p *Page) Close(w io.Writer) error {
	p.Put(`</body></html>`)
	_, err := io.WriteString(w, p.text.String())
	return err
}
