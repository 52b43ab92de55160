//go:build !linux && !darwin

package main

func openFileLimit() (uint64, bool) { return 0, false }

func diskSpace(string) (free, total uint64, ok bool) { return 0, 0, false }
