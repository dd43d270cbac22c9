// Package widget draws tables, bars and charts as text. It does not know what they show.
//
// The order is always the same: [Plain] makes text safe, a fit function sets its width, a
// [Line] adds the style. Styled text is never measured or cut.
package widget
