package protocol

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFirstErrorSeesEveryCode sets each code field of each served response
// alone.
func TestFirstErrorSeesEveryCode(t *testing.T) {
	t.Parallel()
	for _, a := range apis {
		// paths are the ways to code fields, arrays given one element.
		var walk func(v reflect.Value, path string, set func())
		fields := 0
		var resp kmsg.Response
		walk = func(v reflect.Value, path string, _ func()) {
			for i := range v.NumField() {
				f, ft := v.Field(i), v.Type().Field(i)
				name := path + "." + ft.Name
				switch {
				case f.Kind() == reflect.Int16 && strings.HasSuffix(ft.Name, "ErrorCode"):
					fields++
					f.SetInt(77)
					if got := firstError(resp); got != 77 {
						t.Errorf("%s%s = 77 is seen as %d", kmsg.NameForKey(a.key), name, got)
					}
					f.SetInt(0)
				case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[kmsg.Tags]():
					walk(f, name, nil)
				case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
					f.Set(reflect.MakeSlice(f.Type(), 2, 2))
					walk(f.Index(1), name, nil)
				}
			}
		}
		resp = kmsg.ResponseForKey(a.key)
		if got := firstError(resp); got != 0 {
			t.Errorf("key %d: an empty response has code %d", a.key, got)
		}
		walk(reflect.ValueOf(resp).Elem(), "", nil)
		if fields == 0 {
			t.Errorf("key %d: no code field was found", a.key)
		}
	}
}
