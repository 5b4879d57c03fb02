package settings

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

// ParseSize reads sizes as "512MiB" or "2GB", in bytes.
func ParseSize(s string) (int64, error) {
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
