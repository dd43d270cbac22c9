package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/tui/widget"
)

// prompt is a dialog in the last line with a text field.
type prompt struct {
	label  string
	text   []rune
	at     int // position of the cursor
	before string

	typed    func(text string)                // called after each edit, and with the original text after Esc
	note     func(text string) (string, bool) // returns a note about the text, and whether it is an error
	finish   func(text string) tea.Cmd        // called after Enter; may be nil
	complete func(text string) string         // completes the text after Tab; may be nil
	next     func(text string) dialog         // returns the dialog after Enter; may be nil
}

func newPrompt(label, text string) *prompt {
	runes := []rune(text)
	return &prompt{
		label: label, text: runes, at: len(runes), before: text,
		typed: func(string) {}, note: func(string) (string, bool) { return "", false },
	}
}

func (p *prompt) update(_ *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	switch k.String() {
	case "enter":
		return p.close()
	case "esc":
		p.typed(p.before)
		return nil, nil
	case "left":
		p.at = max(0, p.at-1)
	case "right":
		p.at = min(len(p.text), p.at+1)
	case "home", "ctrl+a":
		p.at = 0
	case "end", "ctrl+e":
		p.at = len(p.text)
	case "backspace":
		p.cut(max(0, p.at-1), p.at)
	case "delete":
		p.cut(p.at, min(len(p.text), p.at+1))
	case "ctrl+w":
		p.cut(p.word(), p.at)
	case "tab":
		if p.complete != nil {
			p.text = []rune(p.complete(string(p.text)))
			p.at = len(p.text)
		}
	case "ctrl+u":
		p.cut(0, p.at)
	default:
		if k.Type == tea.KeyRunes || k.Type == tea.KeySpace {
			p.insert(k.Runes)
		}
	}
	return p, nil
}

// close accepts the text.
func (p *prompt) close() (next dialog, cmd tea.Cmd) {
	text := string(p.text)
	if p.next != nil {
		next = p.next(text)
	}
	if p.finish != nil {
		cmd = p.finish(text)
	}
	return next, cmd
}

func (p *prompt) insert(runes []rune) {
	text := append([]rune{}, p.text[:p.at]...)
	text = append(text, runes...)
	p.text = append(text, p.text[p.at:]...)
	p.at += len(runes)
	p.typed(string(p.text))
}

func (p *prompt) cut(from, to int) {
	p.text = append(p.text[:from:from], p.text[to:]...)
	p.at = from
	p.typed(string(p.text))
}

// word returns the start of the word before the cursor.
func (p *prompt) word() int {
	i := p.at
	for i > 0 && p.text[i-1] == ' ' {
		i--
	}
	for i > 0 && p.text[i-1] != ' ' {
		i--
	}
	return i
}

func (p *prompt) view(s *state, lines []string) []string {
	t := s.screen.theme
	note, complaint := p.note(string(p.text))
	st := t.dim
	if complaint {
		st = t.warn
	}
	l := widget.NewLine(s.screen.w)
	l.Skip(widget.Style{}, 1).Put(t.key, p.label).Put(t.text, widget.Plain(string(p.text[:p.at])))
	under, after := " ", ""
	if p.at < len(p.text) {
		under, after = widget.Plain(string(p.text[p.at:p.at+1])), widget.Plain(string(p.text[p.at+1:]))
	}
	l.Put(t.row, under).Put(t.text, after)
	l.Skip(widget.Style{}, 3).Put(st, note)
	lines[len(lines)-1] = l.String()
	return lines
}
