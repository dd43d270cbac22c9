package check

import (
	"fmt"
	"reflect"
	"time"
)

// Fill gives each exported field of v, and of the values in it, another value that is not zero; *n counts
// them. It omits fields that JSON omits always. A byte is 1, 2 or 3.
func Fill(v reflect.Value, n *int) {
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, int64(*n)).UTC()))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				Fill(v.Field(i), n)
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		Fill(v.Index(0), n)
		Fill(v.Index(1), n)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem(), n)
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Uint8:
		v.SetUint(uint64(1 + *n%3))
	case v.CanInt():
		v.SetInt(int64(*n))
	default:
		panic(fmt.Sprintf("cannot fill a %v", v.Type()))
	}
}
