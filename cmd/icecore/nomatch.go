package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
)

// filterFlag is a flag that selects rollouts, and the values it was given.
type filterFlag struct {
	name   string
	values []string
}

// noteMisses says on standard error what of the filters selects nothing: a name
// that nobody has is most often a slip of the pen. found is how many of things
// all filters together found. Of several harnesses each is looked up; when their
// names cannot be had, less is said.
func noteMisses(ctx context.Context, cl *client, things string, found int64, flags ...filterFlag) {
	var given, harnesses []string
	for _, f := range flags {
		for _, v := range f.values {
			given = append(given, "--"+f.name+" "+plainText(v, false))
		}
		if f.name == "harness" {
			harnesses = f.values
		}
	}
	if len(given) == 0 || found > 0 && len(harnesses) < 2 {
		return
	}
	unknown, known := unknownHarnesses(ctx, cl, harnesses)
	switch {
	case len(unknown) > 0:
		there := "there is no rollout that names its harness"
		if len(known) > 0 {
			there = "the harnesses are " + strings.Join(known, ", ")
		}
		fmt.Fprintf(os.Stderr, "icecore: no rollout matches --harness %s; %s\n", strings.Join(unknown, ", "), there)
	case found == 0:
		fmt.Fprintf(os.Stderr, "icecore: no %s matches %s\n", things, strings.Join(given, " "))
	}
}

func unknownHarnesses(ctx context.Context, cl *client, asked []string) (unknown, known []string) {
	if len(asked) == 0 {
		return nil, nil
	}
	var list struct {
		Harnesses []struct {
			Harness string `json:"harness"`
		} `json:"harnesses"`
	}
	if cl.call(ctx, http.MethodGet, "/v1/harnesses", nil, &list) != nil {
		return nil, nil
	}
	names := map[string]bool{}
	for _, h := range list.Harnesses {
		if names[h.Harness] = true; h.Harness != "" {
			known = append(known, plainText(h.Harness, false))
		}
	}
	for _, name := range asked {
		if !names[name] {
			unknown = append(unknown, plainText(name, false))
		}
	}
	slices.Sort(known)
	return unknown, slices.Compact(known)
}
