package apptest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is wrong with a request is refused by name, and nothing is leased.
func TestLeaseRequestsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("g", 1, 0)...)
	for field, values := range map[string][]string{
		"colour":                {`1`},
		"key":                   {`""`, `7`, `"a\u0000"`, `["k"]`},
		"max_groups":            {`0`, `65537`, `1.0`, `"1"`, `-1`, `true`, `1e2`},
		"groups":                {`0`, `65537`},
		"max_trajectories":      {`0`, `2147483648`},
		"max_tokens":            {`0`, `9007199254740993`},
		"max_row_tokens":        {`0`},
		"lease_seconds":         {`0`, `86401`, `1.5`},
		"wait_seconds":          {`-1`, `601`, `"1"`, `1e999`, `[]`},
		"policy":                {`"none"`, `"strict_tree(1)"`, `3`, `"polar_compat(end_of_turn=-1)"`},
		"where":                 {`[]`, `"split"`, `1`},
		"where.colour":          {`WHERE{"colour": 1}`},
		"where.split":           {`WHERE{"split": "both"}`, `WHERE{"split": []}`, `WHERE{"split": 1}`, `WHERE{"split": ["train", null]}`},
		"where.harness":         {`WHERE{"harness": []}`, `WHERE{"harness": {}}`, `WHERE{"harness": [1]}`, `WHERE{"harness": ["x"` + strings.Repeat(`,"x"`, 5000) + `]}`},
		"where.complete":        {`WHERE{"complete": "true"}`},
		"policy_version":        {`-1`, `1.5`, `9223372036854775808`},
		"max_staleness":         {`1`, `-1`},
		"on_failed":             {`"ignore"`, `true`},
		"failed_score":          {`"0"`, `1`, `1e999`},
		"kinds":                 {`[]`, `"title"`, `["agent", "title"]`},
		"require_reward":        {`1`, `"false"`},
		"include_unprompted":    {`0`},
		"estimator":             {`"ppo"`, `[]`},
		"sigma":                 {`"none"`},
		"epsilon":               {`-1`, `2`, `"x"`},
		"single":                {`"one"`},
		"skip_zero_advantage":   {`1`},
		"row_weight":            {`"rows"`},
		"shards":                {`0`, `4097`},
		"shard":                 {`1`, `-1`, `4096`},
		"tokens_per_microbatch": {`0`},
		"cost":                  {`"flops"`},
		"microbatch_multiple":   {`0`, `2`},
		"keep_groups_together":  {`"yes"`},
		"seed":                  {`1.5`, `9223372036854775808`},
		"quiet_seconds":         {`-1`, `86401`},
		"incomplete_seconds":    {`"5"`},
	} {
		for _, v := range values {
			body := fmt.Sprintf(`{%q: %s}`, field, v)
			if inner, ok := strings.CutPrefix(v, "WHERE"); ok {
				body = fmt.Sprintf(`{"where": %s}`, inner)
			}
			p := s.post("/v1/consumers/c/lease", body).problem(422, "invalid_field")
			require.Equal(t, field, p.Field, body)
			require.True(t, strings.HasPrefix(p.Detail, field+": "), p.Detail)
		}
	}
	for field, body := range map[string]string{
		"max_groups":          `{"groups": 1, "max_groups": 16}`,
		"max_tokens":          `{"groups": 1, "max_tokens": 5}`,
		"max_trajectories":    `{"max_trajectories": 5, "groups": 1}`,
		"sigma":               `{"sigma": "population", "estimator": "rloo"}`,
		"epsilon":             `{"epsilon": 0.1, "estimator": "maxrl"}`,
		"single":              `{"single": "reward", "estimator": "reinforce_pp"}`,
		"skip_zero_advantage": `{"skip_zero_advantage": true, "estimator": "none"}`,
		"failed_score":        `{"failed_score": -1, "on_failed": "drop_group"}`,
		"shard":               `{"shards": 4, "shard": 4}`,
	} {
		require.Equal(t, field, s.post("/v1/consumers/c/lease", body).problem(422, "invalid_field").Field, body)
	}
	for body, code := range map[string]string{`[]`: "not_an_object", `"x"`: "not_an_object", `null`: "not_an_object", `{"key":"a","key":"b"}`: "duplicate_field"} {
		s.post("/v1/consumers/c/lease", body).problem(422, code)
	}
	require.EqualValues(t, 3, *s.post("/v1/consumers/c/lease", `{"a`).problem(400, "invalid_json").Offset)
	s.post("/v1/consumers/c/lease?shard=1", `{}`).problem(400, "invalid_parameter")
	s.post("/v1/consumers/"+strings.Repeat("x", 129)+"/lease", `{}`).problem(400, "invalid_parameter")
	s.send("POST", "/v1/consumers/c/lease", []byte(`{}`), "Content-Type", "text/plain").problem(415, "unsupported_media_type")
	s.send("POST", "/v1/consumers/c/lease", []byte(`{}`), "Content-Type", typeJSON, "Content-Encoding", "br").problem(415, "unsupported_encoding")
	s.send("POST", "/v1/consumers/c/lease", append([]byte(`{"key":"`), make([]byte, 5<<20)...), "Content-Type", typeJSON).problem(413, "request_too_large")
	for _, accept := range []string{typeJSON, typeNDJSON, typeArrow + ";q=0, */*", "text/*", "*/*;q=0"} {
		s.send("POST", "/v1/consumers/c/lease", nil, "Accept", accept).problem(406, "not_acceptable")
	}
	s.get("/v1/consumers/c").problem(404, "not_found")

	// What says the default contradicts nothing, and null says nothing.
	var all object
	require.NoError(t, json.Unmarshal([]byte(`{"key": "step-41", "max_groups": 16, "groups": null, "max_trajectories": 1024, "max_tokens": 2000000,
		"lease_seconds": 300, "wait_seconds": 30.0, "policy": "strict_tree", "where": {"split": null, "harness": null, "complete": true},
		"policy_version": 41, "max_staleness": null, "on_failed": "exclude", "failed_score": 0.0, "kinds": ["agent"],
		"estimator": "dr_grpo", "sigma": "sample", "epsilon": null, "single": "zero", "row_weight": "none", "shards": 1, "shard": 0,
		"tokens_per_microbatch": null, "microbatch_multiple": 1, "seed": 7}`), &all))
	for _, accept := range []string{"*/*", "application/*", typeArrow, "text/csv, " + typeArrow + ";q=0.1"} {
		l := s.asLease(s.send("POST", "/v1/consumers/c/lease", encode(all), "Accept", accept, "Content-Type", typeJSON).is(200))
		require.Len(t, l.rows, 2)
	}
	// No body is a request that asks for nothing special.
	require.Len(t, s.asLease(s.send("POST", "/v1/consumers/d/lease", nil).is(200)).rows, 2)
}

func TestSettlingRefused(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("g", 1, 0)...)
	l := s.lease("c", object{"shards": 2})
	for _, c := range []struct{ what, field, body string }{
		{"ack", "shard", `{"shard": 2}`}, {"ack", "shard", `{"shard": -1}`}, {"ack", "metrics", `{"metrics": [1]}`}, {"ack", "reason", `{"reason": "x"}`},
		{"ack", "metrics", `{"metrics": {"x": "` + strings.Repeat("x", 64<<10) + `"}}`},
		{"nack", "delay_seconds", `{"delay_seconds": -1}`}, {"nack", "delay_seconds", `{"delay_seconds": "1"}`}, {"nack", "shard", `{"shard": 0}`},
		{"nack", "reason", `{"reason": "` + strings.Repeat("x", 1025) + `"}`}, {"nack", "reason", `{"reason": 1}`},
		{"extend", "lease_seconds", `{"lease_seconds": 0}`}, {"extend", "seconds", `{"seconds": 5}`},
	} {
		require.Equal(t, c.field, s.post(path("leases", l.id, c.what), c.body).problem(422, "invalid_field").Field, c.body)
	}
	require.Equal(t, "open", s.get(path("leases", l.id)).lease().State)
	require.Empty(t, s.get(path("leases", l.id)).lease().Acknowledged)
}
