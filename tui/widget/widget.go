// Package widget draws with characters: text in, text out. It knows cells,
// columns and styles, and nothing of what they show.
//
// The order of things is always the same: [Plain] makes text safe, a fit makes
// it as wide as its place, a [Line] gives it style. Styled text is never
// measured or cut.
package widget
