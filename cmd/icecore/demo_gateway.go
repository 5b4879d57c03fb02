package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"icecore/enginetest"
)

// demoTool is what the demo's agent offers. Nothing is run: a result only says that
// it was.
const demoTool = `{"type": "function", "function": {"name": "bash", "description": "Run a command.",
  "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}`

// demoWidth is how much of a call's end is shown: the line fits into 100 columns.
const demoWidth = 75

// demoTurns is more than the test engine's agent takes.
const demoTurns = 12

// startDemoEngine gives the URL of a test engine, and what ends it.
func startDemoEngine(ctx context.Context) (url string, stop func() error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("start the test engine: %w", err)
	}
	s := &http.Server{Handler: enginetest.New(enginetest.Options{Seed: 1}), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // it ends when it is closed
	return "http://" + l.Addr().String() + "/vllm", s.Close, nil
}

type demoMessage struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	CallID  string  `json:"tool_call_id,omitempty"`
	Calls   []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls,omitempty"`
}

func says(role, text string) demoMessage { return demoMessage{Role: role, Content: &text} }

// demoAgent works on a task through the gateway, as a harness would.
func demoAgent(ctx context.Context, cl *client, rollout string, w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := printer{w: t}
	p.f("   call\tprompt\tsampled\tends with\n")
	history := []demoMessage{says("system", "You are a coding agent."), says("user", "The sum in sum.py is wrong. Mend it.")}
	for n := 1; n <= demoTurns; n++ {
		var a struct {
			Choices []struct {
				Message demoMessage `json:"message"`
				Finish  string      `json:"finish_reason"`
			} `json:"choices"`
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Sampled int `json:"completion_tokens"`
			} `json:"usage"`
		}
		in := map[string]any{"model": "gpt-5", "messages": history, "tools": []json.RawMessage{json.RawMessage(demoTool)}}
		if err := cl.call(ctx, http.MethodPost, "/gateway/"+rollout+"/v1/chat/completions", in, &a); err != nil {
			return err
		}
		if len(a.Choices) == 0 {
			return errors.New("the engine's answer has no choice")
		}
		m := a.Choices[0].Message
		ends := a.Choices[0].Finish
		for _, c := range m.Calls {
			ends += " " + c.Function.Arguments
		}
		p.f("   %d\t%d\t%d\t%s\n", n, a.Usage.Prompt, a.Usage.Sampled, clip(plainText(ends, false), demoWidth))
		history = append(history, m)
		if len(m.Calls) == 0 {
			break
		}
		for _, c := range m.Calls {
			result := says("tool", "(it ran)")
			result.CallID = c.ID
			history = append(history, result)
		}
	}
	return errors.Join(p.err, t.Flush())
}

// gatewayTour shows a task that an agent did through the gateway, and what is kept.
func (c demoCmd) gatewayTour(ctx context.Context, base string, w io.Writer) error {
	const rollout = "demo-1"
	p := printer{w: w}
	p.f("icecore serves %s in a fresh directory.\n\n", base)
	p.f("1. An agent is pointed at %s/gateway/%s/v1, and does a task:\n\n", base, rollout)
	cl := newClient(base, time.Minute)
	if err := demoAgent(ctx, cl, rollout, w); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := showCaptured(ctx, cl, rollout, w); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	p.f(`
Go on:
  curl -s '%[1]s/v1/rollouts/%[2]s/traces'
  curl -s '%[1]s/v1/rollouts/%[2]s/trajectories' | head -c 600
  bin/icecore query --server %[1]s
  any harness, by its base URL: %[1]s/gateway/my-rollout/v1 (docs/gateway.md says how)
`, base, rollout)
	if !c.Once {
		p.f("\nServing %s until interrupted (Ctrl-C).\n", base)
	}
	return p.err
}

// showCaptured shows the last trace of a rollout, and what the merge made of all.
func showCaptured(ctx context.Context, cl *client, rollout string, w io.Writer) error {
	var list struct {
		Traces []struct {
			ID string `json:"trace_id"`
		} `json:"traces"`
	}
	if err := cl.call(ctx, http.MethodGet, "/v1/rollouts/"+rollout+"/traces", nil, &list); err != nil {
		return err
	}
	if len(list.Traces) == 0 {
		return errors.New("no call was stored")
	}
	var t struct {
		ID       string  `json:"trace_id"`
		Seq      int     `json:"seq"`
		API      string  `json:"api"`
		Status   string  `json:"status"`
		Finish   string  `json:"finish_reason"`
		Prompt   []int32 `json:"prompt_token_ids"`
		Sampled  []int32 `json:"response_token_ids"`
		Logprobs []any   `json:"response_logprobs"`
		Metadata struct {
			Gateway struct {
				Engine     string `json:"engine"`
				Requested  string `json:"requested_model"`
				Continuity struct {
					Label string `json:"label"`
				} `json:"continuity"`
			} `json:"gateway"`
		} `json:"metadata"`
	}
	if err := cl.call(ctx, http.MethodGet, "/v1/traces/"+list.Traces[len(list.Traces)-1].ID, nil, &t); err != nil {
		return err
	}
	p := printer{w: w}
	p.f("\n2. The last of %d traces, GET /v1/traces/%s:\n\n", len(list.Traces), t.ID)
	p.f("   seq %d, %s, model %s asked for, engine %s, status %s, finish_reason %s\n", t.Seq, t.API, t.Metadata.Gateway.Requested, t.Metadata.Gateway.Engine, t.Status, t.Finish)
	p.f("   prompt_token_ids   (%d) … %s\n", len(t.Prompt), tailOf(t.Prompt, 8))
	p.f("   response_token_ids (%d) %s …\n", len(t.Sampled), headOf(t.Sampled, 8))
	p.f("   response_logprobs  (%d) %s …\n", len(t.Logprobs), headOf(t.Logprobs, 4))
	p.f("   set against the call before it, its prompt: %s\n", t.Metadata.Gateway.Continuity.Label)

	var m struct {
		Trajectories []struct {
			Tokens []int32 `json:"token_ids"`
			Mask   []int   `json:"loss_mask"`
		} `json:"trajectories"`
		Boundaries []struct {
			Kind string `json:"kind"`
		} `json:"boundaries"`
	}
	if err := cl.call(ctx, http.MethodGet, "/v1/rollouts/"+rollout+"/trajectories", nil, &m); err != nil {
		return err
	}
	kinds := map[string]int64{}
	for _, b := range m.Boundaries {
		kinds[b.Kind]++
	}
	p.f("\n3. What a learner gets, GET /v1/rollouts/%s/trajectories: boundaries %s\n\n", rollout, counts(kinds))
	for _, row := range m.Trajectories {
		trained := 0
		for _, on := range row.Mask {
			trained += on
		}
		p.f("   a trajectory of %d tokens, of which %d were sampled and are trained\n", len(row.Tokens), trained)
	}
	return p.err
}

// clip cuts a text that is longer than width characters, behind a word if there is one.
func clip(text string, width int) string {
	all := []rune(text)
	if len(all) <= width {
		return text
	}
	kept := string(all[:width-1])
	if at := strings.LastIndexByte(kept, ' '); at > 0 {
		kept = kept[:at+1]
	}
	return kept + "…"
}

func headOf[T any](all []T, most int) string {
	text := fmt.Sprint(all[:min(most, len(all))])
	return text[1 : len(text)-1]
}

func tailOf[T any](all []T, most int) string { return headOf(all[max(0, len(all)-most):], most) }
