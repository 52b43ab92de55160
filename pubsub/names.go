package pubsub

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxToken is the longest encoded name used as it is; stream names end at 255
// bytes, and prefix, partition number and incarnation need room.
const maxToken = 200

// Token encodes any string as one subject token: [A-Za-z0-9_-] as they are,
// every other byte as =XX (upper-case hex), the empty name as "=". Encodings
// above 200 bytes become "=h" and 64 hex digits of the name's SHA-256; the true
// name must then be kept beside it. No two names share a token, and no name
// becomes a wildcard, a separator or an empty token.
func Token(name string) string {
	if name == "" {
		return "="
	}
	n := 0
	for i := range len(name) {
		if !plain(name[i]) {
			n += 2
		}
	}
	if n == 0 && len(name) <= maxToken {
		return name
	}
	if len(name)+n > maxToken {
		sum := sha256.Sum256([]byte(name))
		return "=h" + hex.EncodeToString(sum[:])
	}
	var b strings.Builder
	b.Grow(len(name) + n)
	const digits = "0123456789ABCDEF"
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// Name decodes what Token made. ok is false for a hashed name (its true name is
// stored elsewhere) and for what Token never makes.
func Name(token string) (name string, ok bool) {
	if token == "=" {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		switch {
		case plain(c):
			b.WriteByte(c)
		case c == '=' && i+2 < len(token):
			hi, lo := unhex(token[i+1]), unhex(token[i+2])
			if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
				return "", false
			}
			b.WriteByte(byte(hi<<4 | lo))
			i += 2
		default:
			return "", false
		}
	}
	return b.String(), b.Len() > 0 && len(token) <= maxToken
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
