package apptest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParametersAreNotPassedOver: a parameter that says nothing, says two things
// or cannot be read is refused. An empty cursor would begin anew, for ever, and
// a filter that is dropped would select everything.
func TestParametersAreNotPassedOver(t *testing.T) {
	t.Parallel()
	s := start(t)
	d, err := describe(s.get("/openapi.json").is(200).body)
	require.NoError(t, err)
	s.traces(plain("r-1", "t-1", 1, ids(1), ids(2))).all("stored", 1)
	asked := 0
	for path, item := range d.root["paths"].(object) {
		op, ok := item.(object)["get"].(object)
		if !ok || !strings.HasPrefix(path, "/v1/") || op["parameters"] == nil {
			continue
		}
		at := strings.NewReplacer("{rollout_id}", "r-1", "{trace_id}", "t-1").Replace(path)
		for _, v := range op["parameters"].([]any) {
			_, p := d.follow("", v)
			_, schema := d.follow("", p["schema"])
			if p["in"] != "query" || schema["type"] == "array" {
				continue
			}
			name := p["name"].(string)
			for _, query := range []string{name + "=", name, name + "=1&" + name + "=1"} {
				got := s.get(at+"?"+query).problem(http.StatusBadRequest, "invalid_parameter")
				require.Equal(t, name, got.Field, "%s?%s", at, query)
			}
			asked++
		}
		for _, query := range []string{"limit=1;harness=a", "harness=%zz", "harness=%"} {
			s.get(at+"?"+query).problem(http.StatusBadRequest, "invalid_parameter")
		}
	}
	require.Greater(t, asked, 15)
	for _, query := range []string{"ack=", "ack", "ack=durable&ack=queryable", "ack=durable;x", "ack=%zz"} {
		s.post("/v1/traces?"+query, "[]").problem(http.StatusBadRequest, "invalid_parameter")
		s.post("/v1/rewards?"+query, "[]").problem(http.StatusBadRequest, "invalid_parameter")
		s.put("/v1/rollouts/r-1?"+query, "{}").problem(http.StatusBadRequest, "invalid_parameter")
	}
}

// TestBooleansAreWrittenOneWay: the document says true and false.
func TestBooleansAreWrittenOneWay(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, text := range []string{"true", "false"} {
		s.get("/v1/rollouts?complete=" + text).is(200)
	}
	for _, text := range []string{"1", "0", "t", "TRUE", "True", "yes", " true"} {
		s.get("/v1/rollouts?complete="+url.QueryEscape(text)).problem(http.StatusBadRequest, "invalid_parameter")
	}
}
