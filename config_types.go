package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// byteSize is a number of bytes, written plain or with KiB, MiB, GiB (powers of
// 1024) or kB, MB, GB (powers of 1000).
type byteSize int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"b", 1}, {"", 1},
}

func parseByteSize(s string) (byteSize, error) {
	l := strings.ToLower(strings.TrimSpace(s))
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(l, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.factor {
			break
		}
		return byteSize(n * u.factor), nil
	}
	return 0, fmt.Errorf("%q is not a number of bytes such as 1048588 or 16MiB", s)
}

// String writes whole powers of 1024 with their unit, all else as a number.
func (b byteSize) String() string {
	for _, u := range []struct {
		suffix string
		factor byteSize
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b > 0 && b%u.factor == 0 {
			return strconv.FormatInt(int64(b/u.factor), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// nodeID is a broker id; -1 is none. It is written as a number or as a name that
// ends in a dash and an ordinal, which begins at 0 where node ids begin at 1.
type nodeID int

func parseNodeID(s string) (nodeID, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n == 0 {
			return 0, errors.New("ids begin at 1: leave it out to have one chosen")
		}
		return nodeID(n), nil
	}
	if i := strings.LastIndexByte(s, '-'); i > 0 {
		if n, err := strconv.ParseUint(s[i+1:], 10, 31); err == nil {
			return nodeID(n) + 1, nil
		}
	}
	return 0, fmt.Errorf("%q is neither a number nor the name of a pod with its ordinal, such as stream-0", s)
}

// syncMode says when stored data reaches the disk.
type syncMode struct {
	Always   bool
	Interval time.Duration // if not Always
}

func parseSyncMode(s string) (syncMode, error) {
	if strings.EqualFold(s, "always") {
		return syncMode{Always: true}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return syncMode{}, fmt.Errorf("%q is neither always nor an interval such as 10s", s)
	}
	return syncMode{Interval: d}, nil
}

// String is the inverse of parseSyncMode.
func (m syncMode) String() string {
	if m.Always {
		return "always"
	}
	return shortDuration(m.Interval)
}

// parseDuration reads a Go duration, or a bare number in unit (0: not allowed,
// but for 0 itself).
func parseDuration(s string, unit time.Duration) (time.Duration, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		switch {
		case n == 0:
			return 0, nil
		case unit == 0:
			return 0, fmt.Errorf("%q needs a unit, such as %ss or %sms", s, s, s)
		case n > int64(1<<62)/int64(unit) || n < -int64(1<<62)/int64(unit):
			return 0, fmt.Errorf("%q is too long", s)
		}
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 30s or 10m", s)
	}
	return d, nil
}

// shortDuration drops the zero minutes and seconds that time.Duration prints.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
