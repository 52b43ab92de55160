package logging

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// userInfo finds the user info of a URL inside any text. It is greedy up to the
// last @ before a space, a quote, a comma or the path, because passwords may
// hold @ themselves.
var userInfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"',/]*@`)

// RedactURLs replaces the user info of every URL in s by "***".
func RedactURLs(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return userInfo.ReplaceAllString(s, "${1}"+Mask+"@")
}

// Value makes an attribute from text that a peer chose: escaped (control
// characters, invalid UTF-8) and cut at 256 bytes.
func Value(key, s string) slog.Attr { return slog.String(key, Printable(s)) }

// maxPrintable is where Printable cuts, in bytes of the input.
const maxPrintable = 256

// Printable escapes what is not printable in s, as in a Go string literal
// without its quotes, and cuts it at 256 bytes.
func Printable(s string) string {
	s = cut(s, maxPrintable)
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			q := strconv.Quote(s)
			return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
		}
	}
	return s
}

// cut shortens s to about n bytes, on a rune boundary, and says how much is gone.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := 0; i < utf8.UTFMax-1 && n > 0 && !utf8.RuneStart(s[n]); i++ {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:n], len(s)-n)
}
