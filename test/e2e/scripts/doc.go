// Package scripts runs the scenario scripts of the Python and Node clients and
// checks what they left with franz-go.
package scripts
