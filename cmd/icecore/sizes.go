package main

import (
	"fmt"
	"strconv"
	"strings"
)

// sizeUnits are the endings of a size, longest first.
var sizeUnits = []struct {
	name string
	n    int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// parseSize reads sizes as "512MiB" or "2GB".
func parseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(v >= 0 && v*float64(u.n) <= 1<<62) { // NaN too
			break
		}
		return int64(v * float64(u.n)), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 512MiB or 2GB", s)
}

func parseSizes(flags map[string]string) (map[string]int64, error) {
	out := map[string]int64{}
	for name, text := range flags {
		n, err := parseSize(text)
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
