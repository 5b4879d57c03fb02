package table

import (
	"mime"
	"strconv"
	"strings"
)

// accepted is one media range of an Accept header.
type accepted struct {
	media  string
	params map[string]string
	q      float64
}

// Negotiate chooses by the Accept headers of a request (RFC 9110, section 12.5.1):
// of the formats with the highest q the one named first; JSON where they leave it
// open. It reports whether any format is acceptable.
func Negotiate(headers []string) (Format, bool) {
	text := strings.Join(headers, ",")
	if strings.TrimSpace(text) == "" {
		return Format{Media: JSON}, true
	}
	ranges := parseAccept(text)
	best, bestQ, bestPlace := Format{}, 0.0, 0
	for _, media := range Formats {
		place, ok := mostSpecific(ranges, media)
		if !ok {
			continue
		}
		r := ranges[place]
		if r.q > bestQ || r.q == bestQ && r.q > 0 && place < bestPlace {
			best, bestQ, bestPlace = Format{Media: media}, r.q, place
			if media == Arrow {
				best.Codec = FirstCodec(r.params["codecs"])
			}
		}
	}
	return best, bestQ > 0
}

// mostSpecific gives the place of the range that speaks of a media type: it
// itself, then its kind, then any.
func mostSpecific(ranges []accepted, media string) (int, bool) {
	kind, _, _ := strings.Cut(media, "/")
	for _, name := range []string{media, kind + "/*", "*/*"} {
		for i, r := range ranges {
			if r.media == name {
				return i, true
			}
		}
	}
	return 0, false
}

func parseAccept(text string) []accepted {
	var out []accepted
	for _, part := range splitUnquoted(text) {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue // others of the list may be readable
		}
		q := 1.0
		if v, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(v, 64); err != nil || !(q >= 0 && q <= 1) {
				continue
			}
		}
		out = append(out, accepted{media, params, q})
	}
	return out
}

// splitUnquoted cuts at commas, but for those in quotes.
func splitUnquoted(s string) (parts []string) {
	quoted, start := false, 0
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ',' && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// FirstCodec is the first buffer compression of a list that there is.
func FirstCodec(list string) string {
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "zstd", "lz4":
			return name
		}
	}
	return ""
}

// AcceptsArrow reports whether an Arrow stream is acceptable by the Accept headers
// of a request, for a path that has nothing else, and with which buffer
// compression. No header accepts everything.
func AcceptsArrow(headers []string) (codec string, ok bool) {
	text := strings.Join(headers, ",")
	if strings.TrimSpace(text) == "" {
		return "", true
	}
	ranges := parseAccept(text)
	place, found := mostSpecific(ranges, Arrow)
	if !found || ranges[place].q == 0 {
		return "", false
	}
	if ranges[place].media != Arrow {
		return "", true
	}
	return FirstCodec(ranges[place].params["codecs"]), true
}
