// Package types holds the values that two layers must both name: topics,
// partitions, offsets, topic ids. It imports the standard library only and
// holds no config, no interfaces and no errors beyond parsing.
package types
