// Package usage runs the stream binary in ways that must fail, as a person
// would: wrong flags, a port or folder that is taken, a NATS server that will
// not do. Each must end with the right exit code and one clear line.
package usage
