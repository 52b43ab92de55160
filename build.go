package main

import (
	"runtime"
	"runtime/debug"
)

// version and commit are set by release builds (-ldflags "-X main.version=…").
var version, commit string

// build says which program this is.
type build struct{ Version, Commit, GoVersion string }

// readBuild falls back to what the Go toolchain recorded.
func readBuild() build {
	b := build{Version: version, Commit: commit, GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		dirty := ""
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				if b.Commit == "" {
					b.Commit = s.Value[:min(12, len(s.Value))]
				}
			case "vcs.modified":
				if s.Value == "true" && commit == "" {
					dirty = "-dirty"
				}
			}
		}
		if b.Commit != "" {
			b.Commit += dirty
		}
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b
}
