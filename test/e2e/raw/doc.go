// Package raw asks brokers with requests that go out as they are, in a version of
// the caller's choice, one at a time: what no client library does.
package raw
