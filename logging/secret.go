package logging

import (
	"fmt"
	"log/slog"
)

// Mask stands where a secret was.
const Mask = "***"

// Secret holds what must never be shown: every way of printing it, in a log
// line, JSON, YAML, an error or as part of a larger value, gives "***" or a
// pointer. The zero value is the empty secret, which prints as "".
//
// The text sits behind a pointer because fmt does not call the methods of
// unexported fields: it would print a plain string field of a struct as it is.
type Secret struct{ v *string }

// NewSecret wraps s.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{v: &s}
}

// Reveal returns the secret itself, to be handed to what needs it.
func (s Secret) Reveal() string {
	if s.v == nil {
		return ""
	}
	return *s.v
}

// IsZero reports the empty secret.
func (s Secret) IsZero() bool { return s.v == nil }

// String gives the mask, or "" for the empty secret.
func (s Secret) String() string {
	if s.v == nil {
		return ""
	}
	return Mask
}

// Format covers every verb, %x and %#v included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText covers JSON, YAML and slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue covers slog handlers.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
