// Package kill ends a broker with SIGKILL again and again under load and
// checks that nobody notices more than a pause.
package kill
