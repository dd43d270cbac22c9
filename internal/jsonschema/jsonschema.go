// Package jsonschema checks values against the JSON schemas of docs, for tests.
package jsonschema

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// TB is the part of *testing.T that this package uses.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Schema is the part of JSON Schema that our schemas use.
type Schema struct {
	Type       any               `json:"type"`
	Properties map[string]Schema `json:"properties"`
	Required   []string          `json:"required"`
	Additional *bool             `json:"additionalProperties"`
	Items      *Schema           `json:"items"`
	Enum       []any             `json:"enum"`
	AnyOf      []Schema          `json:"anyOf"`
}

// Read returns the schema in a file. It ends the test if it cannot be read.
func Read(t TB, file string) Schema {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Check returns the first error of a value, "" if it has none. Where names the value.
func (s Schema) Check(v any, where string) string {
	if len(s.AnyOf) > 0 {
		return s.checkAny(v, where)
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return fmt.Sprintf("%s: %v is none of %v", where, v, s.Enum)
	}
	switch v := v.(type) {
	case map[string]any:
		if wrong := s.checkObject(v, where); wrong != "" {
			return wrong
		}
	case []any:
		for i, value := range v {
			if s.Items == nil {
				break
			}
			if wrong := s.Items.Check(value, fmt.Sprintf("%s[%d]", where, i)); wrong != "" {
				return wrong
			}
		}
	}
	return s.checkType(typeOf(v), where)
}

func (s Schema) checkAny(v any, where string) string {
	var all []string
	for _, one := range s.AnyOf {
		wrong := one.Check(v, where)
		if wrong == "" {
			return ""
		}
		all = append(all, wrong)
	}
	return strings.Join(all, ", and ")
}

func (s Schema) checkObject(v map[string]any, where string) string {
	for _, key := range s.Required {
		if _, there := v[key]; !there {
			return where + ": no " + key
		}
	}
	for key, value := range v {
		of, known := s.Properties[key]
		if !known && s.Additional != nil && !*s.Additional {
			return where + ": the schema does not know " + key
		}
		if wrong := of.Check(value, where+"."+key); wrong != "" {
			return wrong
		}
	}
	return ""
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64, int, uint64:
		return "number"
	}
	return ""
}

func (s Schema) checkType(is, where string) string {
	switch want := s.Type.(type) {
	case string:
		if want != is {
			return fmt.Sprintf("%s is a %s, not a %s", where, is, want)
		}
	case []any:
		if !slices.Contains(want, any(is)) {
			return fmt.Sprintf("%s is a %s, none of %v", where, is, want)
		}
	}
	return ""
}
