package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"
	"time"
)

// keyCmd makes, shows and revokes the keys that harnesses call the gateway with.
type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make a key for calls of one rollout, and print it."`
	List   keyListCmd   `cmd:"" help:"List the keys of a rollout."`
	Revoke keyRevokeCmd `cmd:"" help:"Make a key count no more."`
}

type keyServer struct {
	Server   string        `help:"The server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	RetryFor time.Duration `help:"How long to wait for a server that is busy or away." default:"30s"`
}

// shownKey is a key as the server shows it.
type shownKey struct {
	Key       string  `json:"key"`
	KeyID     string  `json:"key_id"`
	RolloutID string  `json:"rollout_id"`
	Label     *string `json:"label"`
	CreatedAt string  `json:"created_at"`
	ExpiresAt *string `json:"expires_at"`
	RevokedAt *string `json:"revoked_at"`
}

func (c keyServer) call(ctx context.Context, method, rollout, rest string, in, out any) error {
	cl := newClient(c.Server, c.RetryFor)
	if err := cl.reachable(ctx); err != nil {
		return err
	}
	return cl.call(ctx, method, "/v1/rollouts/"+url.PathEscape(rollout)+"/keys"+rest, in, out)
}

type keyCreateCmd struct {
	Rollout   string        `arg:"" help:"The rollout's id. It is opened if there is none." name:"rollout"`
	Label     string        `help:"What the key is for, shown by list." env:"ICECORE_KEY_LABEL"`
	ExpiresIn time.Duration `help:"How long it counts; 0: until it is revoked." default:"0s" env:"ICECORE_KEY_EXPIRES_IN"`
	keyServer
}

// Help is shown by key create --help.
func (keyCreateCmd) Help() string {
	return `The key goes to standard output, and is shown here only: the server keeps its SHA-256. A harness that sends it
as its API key to http://SERVER/gateway/-/… calls for this rollout.`
}

// Run implements the command.
func (c keyCreateCmd) Run(ctx context.Context) error {
	if c.ExpiresIn != 0 && c.ExpiresIn < time.Second {
		return fmt.Errorf("key create: --expires-in %s is less than a second", c.ExpiresIn)
	}
	body := map[string]any{}
	if c.Label != "" {
		body["label"] = c.Label
	}
	if c.ExpiresIn != 0 {
		body["expires_in_seconds"] = int64(c.ExpiresIn / time.Second)
	}
	var k shownKey
	if err := c.call(ctx, http.MethodPost, c.Rollout, "", body, &k); err != nil {
		return fmt.Errorf("key create: %w", err)
	}
	until := "it counts until it is revoked"
	if k.ExpiresAt != nil {
		until = "it counts until " + *k.ExpiresAt
	}
	fmt.Fprintf(os.Stderr, "%s for rollout %s; %s\n", k.KeyID, k.RolloutID, until)
	fmt.Println(k.Key)
	return nil
}

type keyListCmd struct {
	Rollout string `arg:"" help:"The rollout's id." name:"rollout"`
	Format  string `help:"table or json." default:"table" enum:"table,json" env:"ICECORE_KEY_FORMAT"`
	keyServer
}

// Run implements the command.
func (c keyListCmd) Run(ctx context.Context) error {
	var list struct {
		Keys []shownKey `json:"keys"`
	}
	var raw json.RawMessage
	err := c.call(ctx, http.MethodGet, c.Rollout, "", nil, &raw)
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err == nil && c.Format == "json" {
		_, err = fmt.Printf("%s\n", raw)
	} else if err == nil {
		err = printKeys(os.Stdout, list.Keys)
	}
	if err != nil {
		return fmt.Errorf("key list: %w", err)
	}
	return nil
}

func printKeys(to io.Writer, keys []shownKey) error {
	said := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "key_id\tlabel\tcreated_at\texpires_at\trevoked_at") //nolint:errcheck // Flush tells
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.KeyID, said(k.Label), k.CreatedAt, said(k.ExpiresAt), said(k.RevokedAt)) //nolint:errcheck // Flush tells
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	return nil
}

type keyRevokeCmd struct {
	Rollout string `arg:"" help:"The rollout's id." name:"rollout"`
	KeyID   string `arg:"" help:"The key's id, as list shows it." name:"key_id"`
	keyServer
}

// Run implements the command.
func (c keyRevokeCmd) Run(ctx context.Context) error {
	var k shownKey
	if err := c.call(ctx, http.MethodDelete, c.Rollout, "/"+url.PathEscape(c.KeyID), nil, &k); err != nil {
		return fmt.Errorf("key revoke: %w", err)
	}
	fmt.Printf("%s of rollout %s counts no more\n", k.KeyID, k.RolloutID)
	return nil
}
