package store

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKeys: a key opens its rollout until it expires or is revoked, over restarts, and
// is written nowhere.
func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	start := time.UnixMicro(1_700_000_000_000_000)
	clock := newClock()
	now, set := clock.now, func(to time.Time) { clock.us.Store(to.UnixMicro()) }
	opts := quiet(t, Options{Clock: now})
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	forever, a, err := s.MintKey(ctx, "r", "first", nil)
	require.NoError(t, err)
	set(start.Add(time.Microsecond))
	short, b, err := s.MintKey(ctx, "r", "", ptr(int64(60)))
	require.NoError(t, err)
	other, c, err := s.MintKey(ctx, "r/2", "", nil)
	require.NoError(t, err)
	require.Regexp(t, `^ick_[0-9a-f]{64}$`, forever)
	require.Equal(t, GatewayKey{KeyID: a.KeyID, RolloutID: "r", Label: "first", CreatedAt: start.UnixMicro()}, a)
	require.Equal(t, start.UnixMicro()+1+60_000_000, *b.ExpiresAt)
	finds := func(key, rollout string) {
		t.Helper()
		for range 2 { // from the database, from memory
			got, err := s.FindKey(ctx, key)
			if rollout == "" {
				require.ErrorIs(t, err, ErrUnknownKey)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, rollout, got)
		}
	}
	finds(forever, "r")
	finds(short, "r")
	finds(other, "r/2")
	for _, wrong := range []string{"", "ick_", "sk-" + forever[4:], strings.ToUpper(forever), forever + "0", forever[:67]} {
		finds(wrong, "")
	}
	set(time.UnixMicro(*b.ExpiresAt - 1))
	finds(short, "r")
	set(time.UnixMicro(*b.ExpiresAt))
	finds(short, "")
	_, err = s.RevokeKey(ctx, "r/2", a.KeyID)
	require.ErrorIs(t, err, ErrNotFound, "of another rollout")
	_, err = s.RevokeKey(ctx, "r", "key_0")
	require.ErrorIs(t, err, ErrNotFound)
	revoked, err := s.RevokeKey(ctx, "r", a.KeyID)
	require.NoError(t, err)
	require.Equal(t, now().UnixMicro(), *revoked.RevokedAt)
	finds(forever, "")
	set(now().Add(time.Hour))
	again, err := s.RevokeKey(ctx, "r", a.KeyID)
	require.NoError(t, err)
	require.Equal(t, revoked, again, "revoking twice is the same as once")

	dead := killed(t, opts.Dir)
	require.NoError(t, s.Close(ctx))
	for _, dir := range []string{opts.Dir, dead} {
		for _, name := range []string{controlFile, controlFile + "-wal", warehouseFile} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if os.IsNotExist(err) {
				continue
			}
			require.NoError(t, err)
			for _, key := range []string{forever, short, other} {
				require.NotContains(t, string(text), key[4:], name)
			}
		}
		opts.Dir, opts.TempDir = dir, ""
		s, err = Open(ctx, opts)
		require.NoError(t, err)
		finds(forever, "")
		finds(short, "")
		finds(other, "r/2")
		list, err := s.Keys(ctx, "r")
		require.NoError(t, err)
		require.Equal(t, []GatewayKey{revoked, b}, list)
		list, err = s.Keys(ctx, "r/2")
		require.NoError(t, err)
		require.Equal(t, []GatewayKey{c}, list)
		_, err = s.Keys(ctx, "r/3")
		require.ErrorIs(t, err, ErrNotFound)
		require.NoError(t, s.Close(ctx))
	}
}

// TestRevokedAtOnce: who looks a key up after its revocation has returned does not find
// it, also when others look it up all the time.
func TestRevokedAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	for range 20 {
		key, kept, err := s.MintKey(t.Context(), "r", "", nil)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = s.FindKey(t.Context(), key) // either is right until then
				}
			})
		}
		_, err = s.RevokeKey(t.Context(), "r", kept.KeyID)
		require.NoError(t, err)
		for range 100 {
			_, err = s.FindKey(t.Context(), key)
			require.ErrorIs(t, err, ErrUnknownKey)
		}
		stop()
		wg.Wait()
		_, err = s.FindKey(t.Context(), key)
		require.ErrorIs(t, err, ErrUnknownKey)
	}
}

// TestVersions: what was announced last counts, of one model or of all, in the order of
// the times that were told, and over restarts.
func TestVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	start := time.UnixMicro(1_700_000_000_000_000)
	clock := newClock()
	now, set := clock.now, func(to time.Time) { clock.us.Store(to.UnixMicro()) }
	opts := quiet(t, Options{Clock: now})
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	at := func(seconds int64) *int64 { return ptr(start.UnixMicro() + seconds*1_000_000) }
	says := func(model string, version int64) {
		t.Helper()
		if version < 0 {
			require.Nil(t, s.VersionOf(model))
			return
		}
		require.Equal(t, version, *s.VersionOf(model))
	}
	tell := func(model string, version int64, at *int64) AnnouncedVersion {
		t.Helper()
		v, err := s.AnnounceVersion(ctx, model, version, at)
		require.NoError(t, err)
		return v
	}
	says("a", -1)
	require.Equal(t, AnnouncedVersion{Model: "a", PolicyVersion: 7, At: *at(0), ToldAt: *at(0)}, tell("a", 7, nil))
	says("a", 7)
	says("b", -1)
	set(start.Add(10 * time.Second))
	tell("", 8, nil)
	says("a", 8)
	says("b", 8)
	_, err = s.AnnounceVersion(ctx, "b", 5, at(9))
	require.ErrorIs(t, err, ErrOutdated, "since before what holds for all")
	counts, err := s.AnnounceVersion(ctx, "", 5, at(9))
	require.ErrorIs(t, err, ErrOutdated)
	require.Equal(t, int64(8), counts.PolicyVersion)
	tell("b", 6, at(10))
	says("b", 6) // lower: a rollback
	says("a", 8)
	set(start.Add(20 * time.Second))
	_, err = s.AnnounceVersion(ctx, "", 9, at(9))
	require.ErrorIs(t, err, ErrOutdated)
	want := []AnnouncedVersion{{"", 8, *at(10), *at(10)}, {"b", 6, *at(10), *at(10)}}
	list, err := s.Versions(ctx)
	require.NoError(t, err)
	require.Equal(t, want, list)
	dead := killed(t, opts.Dir)
	require.NoError(t, s.Close(ctx))
	for _, dir := range []string{opts.Dir, dead} {
		opts.Dir, opts.TempDir = dir, ""
		s, err = Open(ctx, opts)
		require.NoError(t, err)
		list, err := s.Versions(ctx)
		require.NoError(t, err)
		require.Equal(t, want, list)
		says("b", 6)
		says("a", 8)
		tell("", 4, nil)
		says("b", 4)
		require.NoError(t, s.Close(ctx))
	}
}
