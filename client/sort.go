package client

import (
	"cmp"
	"slices"
)

// sortBy sorts by topic and partition.
func sortBy[T any](s []T, key func(T) (string, int32)) {
	slices.SortFunc(s, func(a, b T) int {
		at, ap := key(a)
		bt, bp := key(b)
		return cmp.Or(cmp.Compare(at, bt), cmp.Compare(ap, bp))
	})
}
