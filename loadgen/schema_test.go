package loadgen

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/golden"
)

// The schema of scenario files is made from the tags of the fields. With -update, the test writes
// it anew.
func TestTheSchemaOfScenariosHasTheFields(t *testing.T) {
	head := schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "A scenario file of locktop load"}}
	text := check.Must(json.MarshalIndent(append(head, mappingSchema(reflect.TypeFor[Scenario]())...), "", " "))(t)
	golden.Check(t, "../../docs/scenario.schema.json", string(text)+"\n")
}

func TestANewFieldIsInTheSchema(t *testing.T) {
	type inner struct {
		First string        `yaml:"first,word,short"`
		Until time.Duration `yaml:"until finish,positive"`
	}
	type fresh struct {
		Share float64 `yaml:"share,share"`
		Inner inner   `yaml:"inner"`
		Waits []Stage `yaml:"waits"`
		State int     // a file cannot set a field without a tag
	}
	got := string(check.Must(json.Marshal(mappingSchema(reflect.TypeFor[fresh]())))(t))
	check.Equal(t, got, `{"type":"object","properties":{"share":{"type":["string","number"]},`+
		`"inner":{"anyOf":[{"type":"string"},{"type":"object","properties":{"first":{"type":"string"},"until":{"type":"string"},"finish":{"type":"string"}},"additionalProperties":false}]},`+
		`"waits":{"type":"array","items":{"type":"object","properties":{"for":{"type":"string"},"clients":{"type":"integer"},"rate":{"type":["string","number"]}},"additionalProperties":false,"required":["for"]}}},`+
		`"additionalProperties":false}`)
}

// schema is an object of a JSON schema, with its keys in order.
type schema []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (s schema) MarshalJSON() ([]byte, error) {
	var all []string
	for _, m := range s {
		key, _ := json.Marshal(m.key)
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		all = append(all, string(key)+":"+string(value))
	}
	return []byte("{" + strings.Join(all, ",") + "}"), nil
}

// words has the values of the types that have few.
var words = map[reflect.Type]any{
	reflect.TypeFor[Kind](): append(Kinds(), Exec), reflect.TypeFor[Pick](): Picks(), reflect.TypeFor[Shape](): Shapes(),
	reflect.TypeFor[Arrivals](): []Arrivals{Even, Poisson}, reflect.TypeFor[FaultKind](): FaultKinds(),
}

// jsonTypes has the types of the scalars, by the format that a field's option or type names; of any
// other format a value is a string.
var jsonTypes = map[string]any{
	"bool": "boolean", "int": "integer", "uint64": "integer", "float64": "number",
	"fraction": []string{"string", "number"}, "share": []string{"string", "number"}, "rate": []string{"string", "number"},
}

// schemaOf returns the schema of a field.
func schemaOf(f field) schema {
	switch t := f.value.Type(); {
	case words[t] != nil:
		return schema{{"enum", words[t]}}
	case t.Kind() == reflect.Slice:
		return schema{{"type", "array"}, {"items", structSchema(t.Elem())}}
	case t.Kind() == reflect.Struct:
		return structSchema(t)
	}
	for _, name := range append(f.options, f.value.Type().String()) {
		if known := jsonTypes[name]; known != nil {
			return schema{{"type", known}}
		}
	}
	return schema{{"type", "string"}}
}

// structSchema returns the schema of a mapping, or of the scalar that can stand for it.
func structSchema(t reflect.Type) schema {
	v, whole := reflect.New(t), mappingSchema(t)
	var short []schema
	if s, ok := v.Interface().(shortForm); ok {
		short = append(short, schema{{"type", "string"}})
		if s.parseShort("true") == nil { // on and off, which are booleans in YAML
			short[0] = schema{{"type", []string{"string", "boolean"}}}
		}
	}
	for _, f := range fieldsOf(v.Elem()) {
		if f.is("short") {
			short = append(short, schemaOf(f))
		}
	}
	switch {
	case len(short) == 0:
		return whole
	case t == reflect.TypeFor[Threshold]():
		return short[0]
	}
	return schema{{"anyOf", append(short, whole)}}
}

// mappingSchema returns the schema of a mapping with the keys of a struct. A key is required if the
// zero value is not valid without it.
func mappingSchema(t reflect.Type) schema {
	var keys schema
	v := reflect.New(t).Elem()
	for _, f := range fieldsOf(v) {
		for _, key := range f.keys {
			if len(keys) == 0 || keys[len(keys)-1].key != key { // two fields are two ways to write one value
				keys = append(keys, member{key, schemaOf(f)})
			}
		}
	}
	s := schema{{"type", "object"}, {"properties", keys}, {"additionalProperties", false}}
	var err error
	switch one := v.Interface().(type) {
	case Stage:
		err = one.validate()
	case Fault:
		err = one.validate(Mutex)
	}
	if err != nil {
		key, _, _ := strings.Cut(err.Error(), " ")
		s = append(s, member{"required", []string{key}})
	}
	return s
}
