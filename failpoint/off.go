//go:build !failpoint

// Package failpoint lets the torture test kill the process, or make a write
// fail, at a named place. Only binaries built with the tag "failpoint" can.
package failpoint

// Hit does nothing in this build.
func Hit(string) error { return nil }
