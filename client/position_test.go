package client

import (
	"testing"
	"time"
)

func TestParsePosition(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, zone)
	at := func(t time.Time) position { return position{atTime, t.UnixMilli()} }
	for s, want := range map[string]position{
		"earliest":                    {kind: earliest},
		"latest":                      {kind: latest},
		"0":                           {atOffset, 0},
		"42":                          {atOffset, 42},
		"-3":                          {beforeEnd, 3},
		"@1700000000000":              {atTime, 1700000000000},
		"2026-11-30T08:15:00Z":        at(time.Date(2026, 11, 30, 8, 15, 0, 0, time.UTC)),
		"2026-11-30T08:15:00.5-02:00": at(time.Date(2026, 11, 30, 10, 15, 0, 500e6, time.UTC)),
		"2026-11-30":                  at(time.Date(2026, 11, 30, 0, 0, 0, 0, zone)),
		"2026-11-30 08:15":            at(time.Date(2026, 11, 30, 8, 15, 0, 0, zone)),
		"90m":                         at(now.Add(-90 * time.Minute)),
	} {
		if got, err := parsePosition(s, now); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "soon", "1.5", "@", "@-1", "@x", "-90m", "2026-13-01", "99999999999999999999", "2026-11-30T08:15:00Zx"} {
		if got, err := parsePosition(s, now); err == nil {
			t.Errorf("%q: %+v", s, got)
		}
	}
}
