package generate

import (
	"slices"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// carried are parameters that engines know, by what they call them. Those that are
// whole numbers come as 64.0 too.
var carried = []struct {
	name, as string
	whole    bool
}{
	{"temperature", "temperature", false}, {"topP", "top_p", false}, {"topK", "top_k", true}, {"seed", "seed", true},
	{"presencePenalty", "presence_penalty", false}, {"frequencyPenalty", "frequency_penalty", false},
}

// knownConfig are the other members of generationConfig that are read, and those that
// change nothing for an engine.
var knownConfig = []string{
	"stopSequences", "maxOutputTokens", "candidateCount", "thinkingConfig", "responseModalities",
	"responseMimeType", "responseSchema", "responseJsonSchema", "_responseJsonSchema",
	"enableEnhancedCivicAnswers", "audioTimestamp",
}

func (d *decoder) generation() error {
	d.r.Reasoning.Hidden = true // unless includeThoughts says otherwise
	v := get(d.body, "generationConfig")
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	if err := d.numbers(f); err != nil {
		return err
	}
	stop := get(f, "stopSequences")
	all, err := stop.Array()
	if err != nil {
		return err
	}
	for _, v := range all {
		if _, err := v.NeedString(); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		d.r.Sampling["stop"] = stop.Compact()
	}
	for _, step := range []func(body.Fields) error{d.modalities, d.format, d.thinking} {
		if err := step(f); err != nil {
			return err
		}
	}
	for _, m := range f.All() {
		known := slices.Contains(knownConfig, camel(m.Name)) || slices.Contains(knownConfig, m.Name)
		for _, p := range carried {
			known = known || camel(m.Name) == p.name
		}
		if !known && !m.Value.Absent() {
			d.r.Rewrite("dropped_field", m.Value.Path(), "the gateway does not carry it")
		}
	}
	return nil
}

func (d *decoder) numbers(f body.Fields) error {
	for _, p := range carried {
		v := get(f, p.name)
		if v.Absent() {
			continue
		}
		if !p.whole {
			if _, err := v.Float(); err != nil {
				return err
			}
			d.r.Sampling[p.as] = v.Raw()
			continue
		}
		n, err := v.Int()
		if err != nil {
			return err
		}
		if d.r.Sampling[p.as], err = turn.AppendJSON(nil, *n); err != nil {
			return err
		}
	}
	var err error
	if d.r.MaxTokens, err = get(f, "maxOutputTokens").Int(); err != nil {
		return err
	}
	if most := d.r.MaxTokens; most != nil && *most < 1 {
		return get(f, "maxOutputTokens").Invalid("must be at least 1")
	}
	n, err := get(f, "candidateCount").Int()
	if err != nil {
		return err
	}
	if n != nil {
		if *n < 1 || *n > 128 {
			return get(f, "candidateCount").Invalid("must be from 1 to 128")
		}
		d.r.N = int(*n)
	}
	return nil
}
