package protocol

import (
	"math/rand/v2"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// filler fills requests and responses with random values, every field set.
type filler struct {
	*rand.Rand
	tags int // unknown tagged fields per struct
}

func newFiller(seed uint64) *filler { return &filler{Rand: rand.New(rand.NewPCG(seed, 11))} }

// fill sets all exported fields of what p points to but Version. kmsg ignores
// fields that the version lacks.
func (f *filler) fill(p any) { f.value(reflect.ValueOf(p).Elem()) }

func (f *filler) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
			for i := range f.tags {
				tags.Set(uint32(1000+i*i), []byte(strings.Repeat("t", f.IntN(4))))
			}
			return
		}
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() && t.Name != "Version" {
				f.value(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.value(v.Elem())
	case reflect.Slice:
		n := 1 + f.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.value(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.value(v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.Repeat(string(rune('a'+f.IntN(26))), f.IntN(6)))
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.Int64() >> (1 + f.IntN(60)) & (1<<(v.Type().Bits()-1) - 1))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(f.Uint64() & (1<<v.Type().Bits() - 1))
	case reflect.Float64:
		v.SetFloat(f.Float64())
	default:
		panic("fill: " + v.Type().String())
	}
}

// every runs fn for each served key and version.
func every(fn func(a *api, version int16)) {
	for _, a := range apis {
		for v := a.min; v <= a.max; v++ {
			fn(a, v)
		}
	}
}
