package settings

import "slices"

// Resolve finds the engines' name, and the options, for the model that a harness
// asks for: by its exact name, then by aliases in the order of the file, then the
// default model, then the only one. served are the models of the engines in their
// order, which count where the file names none. nil: there is no such model.
func (s *Settings) Resolve(model string, served []string) (string, *Model) {
	if len(s.Models) == 0 {
		return s.resolveServed(model, served)
	}
	for _, m := range s.Models {
		if m.Name == model {
			return m.Name, m
		}
	}
	for _, m := range s.Models {
		if slices.ContainsFunc(m.Aliases, func(pattern string) bool { return Match(pattern, model) }) {
			return m.Name, m
		}
	}
	for _, m := range s.Models {
		if m.Name == s.DefaultModel || s.DefaultModel == "" && len(s.Models) == 1 {
			return m.Name, m
		}
	}
	return "", nil
}

func (s *Settings) resolveServed(model string, served []string) (string, *Model) {
	switch {
	case slices.Contains(served, model):
	case s.DefaultModel != "":
		model = s.DefaultModel
	case len(served) == 1 || s.FirstServed && len(served) > 0:
		model = served[0]
	default:
		return "", nil
	}
	return model, DefaultModel(model)
}

// Match says whether name is of the pattern: * stands for any text, ? for any one
// character, and every other character for itself.
func Match(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	// star is the last * seen, and mark how much of name it has taken.
	star, mark, i, j := -1, 0, 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// Plain says whether an alias stands for one name alone.
func Plain(pattern string) bool {
	return !slices.ContainsFunc([]rune(pattern), func(r rune) bool { return r == '*' || r == '?' })
}
