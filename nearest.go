package main

import "slices"

// nearest returns the word of known that takes the fewest edits from s:
// inserting, deleting, replacing a letter or swapping two neighbours. Of several
// it is the first in the order given.
func nearest(s string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	return slices.MinFunc(known, func(a, b string) int { return distance(s, a) - distance(s, b) })
}

// distance is the optimal string alignment distance, in bytes. What a user
// typed is cut at 128 bytes: the work stays bounded.
func distance(a, b string) int {
	a, b = a[:min(len(a), 128)], b[:min(len(b), 128)]
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
