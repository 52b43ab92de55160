// Package kgo runs franz-go's own test suite against a broker.
package kgo
