package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// sortedJSON writes v as JSON with its keys sorted and no white space; numbers stay as
// they were written.
func sortedJSON(v any) ([]byte, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, err
	}
	// Raw members inside v come in whatever order they had; a second pass sorts them.
	var whole any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&whole); err != nil {
		return nil, fmt.Errorf("read JSON back: %w", err)
	}
	return encode(whole)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
