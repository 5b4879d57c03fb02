package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for releases.
var version = "0.1.0-dev"

type versionCmd struct{}

func (versionCmd) Run() error { return printVersion(os.Stdout) }

func printVersion(w io.Writer) error {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if _, err := fmt.Fprintf(w, "icecore %s (revision %s, %s, %s/%s)\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
		return fmt.Errorf("print version: %w", err)
	}
	return nil
}
