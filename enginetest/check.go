package enginetest

import (
	"fmt"
	"slices"
	"strings"
)

// Check says whether every word in the script is one that the engine knows: a
// misspelt fault would never happen, and its test pass.
func (s *Script) Check() error {
	for _, c := range []struct {
		where, word string
		known       string
	}{
		{"agent", s.Builtin, "coder echo"},
		{"sampling.end", s.Sampling.End, "none second"},
		{"ids.answer", s.IDs.Answer, "none tail first_missing held_missing misplaced in_logprobs"},
		{"ids.prompt", s.IDs.Prompt, "absent in_choice wrong short"},
		{"logprobs.fault", s.Logprobs.Fault, "missing short long shifted nan -inf floor null"},
		{"chunks.usage", s.Chunks.Usage, "absent wrong continuous"},
		{"chunks.lines", s.Chunks.Lines, "crlf"},
	} {
		if err := known(c.where, c.word, c.known); c.word != "" && err != nil {
			return err
		}
	}
	for i, f := range s.Faults {
		err := known(fmt.Sprintf("faults[%d].kind", i), f.Kind, "status html drop cut_clean cut_broken error_event abort "+
			"no_finish done_twice no_done deaf deaf_abort repeat_last")
		if err != nil {
			return err
		}
		if err := known(fmt.Sprintf("faults[%d].only", i), f.Only, "stream whole"); f.Only != "" && err != nil {
			return err
		}
	}
	return nil
}

func known(where, word, words string) error {
	if slices.Contains(strings.Fields(words), word) {
		return nil
	}
	return fmt.Errorf("%s: unknown word %q; known are: %s", where, word, words)
}
