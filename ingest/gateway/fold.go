package gateway

import (
	"fmt"

	"icecore/ingest/gateway/turn"
)

// foldSystem moves system messages that stand amid the history into the user's turn
// beside them: the next one if that is a user's, else the one before; where neither is,
// they become a user's turn themselves, in place. They never move to the beginning: that
// would change the prompt from there on at every such message.
func foldSystem(r *turn.Request) {
	out := make([]turn.Message, 0, len(r.Messages))
	anchors := map[int]string{}
	// carried are texts that wait for the user's turn after them.
	var carried []turn.Part
	lead := true
	for i := range r.Messages {
		m := r.Messages[i]
		lead = lead && m.Role == turn.RoleSystem
		if m.Role == turn.RoleSystem && !lead {
			r.Rewrite("folded_system", fmt.Sprintf("messages[%d]", i), "")
			part := turn.Part{Text: "<system>\n" + m.Text() + "\n</system>"}
			switch {
			case userNext(r.Messages[i+1:]):
				carried = append(carried, part)
			case len(out) > 0 && out[len(out)-1].Role == turn.RoleUser:
				out[len(out)-1] = withParts(out[len(out)-1], nil, []turn.Part{part})
			default:
				out = append(out, turn.Message{Role: turn.RoleUser, Content: []turn.Part{part}})
			}
			continue
		}
		if len(carried) > 0 {
			m, carried = withParts(m, carried, nil), nil
		}
		if anchor, ok := r.Anchors[i]; ok {
			anchors[len(out)] = anchor
		}
		out = append(out, m)
	}
	r.Messages = out
	if r.Anchors != nil {
		r.Anchors = anchors
	}
}

// userNext says whether the next message that is not the system's is the user's.
func userNext(rest []turn.Message) bool {
	for i := range rest {
		if rest[i].Role != turn.RoleSystem {
			return rest[i].Role == turn.RoleUser
		}
	}
	return false
}

// withParts puts texts before and behind a user's own. Texts stay one string where they
// came as one, since some templates take nothing else.
func withParts(m turn.Message, before, behind []turn.Part) turn.Message {
	parts := append(append(append([]turn.Part{}, before...), m.Content...), behind...)
	for i := range parts {
		if parts[i].Raw != nil {
			m.Content, m.AsArray = parts, true
			return m
		}
	}
	if m.AsArray {
		m.Content = parts
		return m
	}
	text := ""
	for i, p := range parts {
		if i > 0 {
			text += "\n\n"
		}
		text += p.Text
	}
	m.Content = turn.TextOf(text)
	return m
}
