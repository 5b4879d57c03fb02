package main

import (
	"fmt"

	"icecore/ingest/gateway/settings"
)

func parseSizes(flags map[string]string) (map[string]int64, error) {
	out := map[string]int64{}
	for name, text := range flags {
		n, err := settings.ParseSize(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = n
	}
	return out, nil
}

// humanSize writes a size for people.
func humanSize(n int64) string {
	for _, u := range []struct {
		name string
		n    float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if float64(n) >= u.n {
			return fmt.Sprintf("%.1f %s", float64(n)/u.n, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
