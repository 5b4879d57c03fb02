package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"icecore/trace"
)

// GatewayKey is what is kept of a key that a harness calls the gateway with. Times are
// microseconds since the Unix epoch, UTC; nil: never.
type GatewayKey struct {
	KeyID     string
	RolloutID string
	Label     string
	CreatedAt int64
	ExpiresAt *int64
	RevokedAt *int64
}

// ErrUnknownKey says that a key was never minted, is revoked, or has expired.
var ErrUnknownKey = errors.New("the key is not known, or counts no more")

// MintKey makes a key for calls of one rollout, which is opened if there is none.
// seconds is how long it counts; nil: until it is revoked. The key itself is given
// here and nowhere else.
func (s *Store) MintKey(ctx context.Context, rolloutID, label string, seconds *int64) (key string, kept GatewayKey, err error) {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", GatewayKey{}, fmt.Errorf("make a key: %w", err)
	}
	key = trace.KeyPrefix + hex.EncodeToString(secret[:])
	hash := sha256.Sum256([]byte(key))
	kept = GatewayKey{KeyID: "key_" + hex.EncodeToString(hash[:8]), RolloutID: rolloutID, Label: label}
	_, err = s.committer.submit(ctx, itemBytes, func(ctx context.Context, k *commit) error {
		r, err := k.needRollout(ctx, rolloutID)
		if err != nil {
			return err
		}
		kept.CreatedAt = k.now
		if seconds != nil {
			until := k.now + *seconds*1_000_000
			kept.ExpiresAt = &until
		}
		return k.exec(ctx, "keep a key", `INSERT INTO gateway_keys (key_hash, key_id, rollout_key, label, created_at, expires_at)
			VALUES (?,?,?,?,?,?)`, hash[:], kept.KeyID, r.Key, null(label), kept.CreatedAt, kept.ExpiresAt)
	})
	if err != nil {
		return "", GatewayKey{}, err
	}
	return key, kept, nil
}

const keyColumns = `SELECT k.key_id, r.rollout_id, coalesce(k.label, ''), k.created_at, k.expires_at, k.revoked_at
	FROM gateway_keys k JOIN rollouts r USING (rollout_key) `

func (g *GatewayKey) scan(s scanner) error {
	err := s.Scan(&g.KeyID, &g.RolloutID, &g.Label, &g.CreatedAt, &g.ExpiresAt, &g.RevokedAt)
	if err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	return nil
}

// Keys lists the keys of a rollout, oldest first, also those that count no more.
// ErrNotFound: there is no such rollout.
func (s *Store) Keys(ctx context.Context, rolloutID string) (list []GatewayKey, err error) {
	r, err := s.Rollout(ctx, rolloutID)
	if err != nil {
		return nil, err
	}
	rs, err := s.control.read.QueryContext(ctx, keyColumns+`WHERE k.rollout_key = ? ORDER BY k.created_at, k.key_id`, r.Key)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var g GatewayKey
		if err := g.scan(rs); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, rs.Err()
}

// RevokeKey makes a key count no more, from its return on. Revoking again changes
// nothing. ErrNotFound: the rollout has no such key.
func (s *Store) RevokeKey(ctx context.Context, rolloutID, keyID string) (g GatewayKey, err error) {
	err = s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		row := k.c.conn.QueryRowContext(ctx, keyColumns+`WHERE k.key_id = ?`, keyID)
		err = g.scan(row)
		switch {
		case errors.Is(err, sql.ErrNoRows) || err == nil && g.RolloutID != rolloutID:
			return ErrNotFound, nil
		case err != nil || g.RevokedAt != nil:
			return nil, err
		}
		g.RevokedAt = &k.now
		return nil, k.exec(ctx, "revoke a key", `UPDATE gateway_keys SET revoked_at = ? WHERE key_id = ?`, k.now, keyID)
	})
	s.keys.forget()
	return g, err
}

// FindKey gives the rollout that a key was minted for. ErrUnknownKey: it opens none.
func (s *Store) FindKey(ctx context.Context, key string) (rolloutID string, err error) {
	if !strings.HasPrefix(key, trace.KeyPrefix) {
		return "", ErrUnknownKey
	}
	hash := sha256.Sum256([]byte(key))
	found, revocations := s.keys.find(hash)
	if found == nil {
		found = &keyEntry{}
		err := s.control.read.QueryRowContext(ctx, `SELECT r.rollout_id, k.expires_at FROM gateway_keys k JOIN rollouts r USING (rollout_key)
			WHERE k.key_hash = ? AND k.revoked_at IS NULL`, hash[:]).Scan(&found.rollout, &found.until)
		if errors.Is(err, sql.ErrNoRows) {
			return "", ErrUnknownKey
		}
		if err != nil {
			return "", fmt.Errorf("look up key: %w", err)
		}
		s.keys.keep(hash, found, revocations)
	}
	if found.until != nil && s.now() >= *found.until {
		return "", ErrUnknownKey
	}
	return found.rollout, nil
}

// keyCache keeps keys that were looked up. Hashes, not keys, are compared, so time
// tells nothing of a key.
type keyCache struct {
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*keyEntry
	// revocations counts them: what was read before one may not be kept after it.
	revocations int64
}

type keyEntry struct {
	rollout string
	until   *int64
}

// maxCachedKeys bounds the cache; beyond it, everything is forgotten at once.
const maxCachedKeys = 65_536

func newKeyCache() *keyCache { return &keyCache{byHash: map[[sha256.Size]byte]*keyEntry{}} }

func (c *keyCache) find(hash [sha256.Size]byte) (*keyEntry, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byHash[hash], c.revocations
}

func (c *keyCache) keep(hash [sha256.Size]byte, e *keyEntry, revocations int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revocations != revocations {
		return
	}
	if len(c.byHash) >= maxCachedKeys {
		clear(c.byHash)
	}
	c.byHash[hash] = e
}

func (c *keyCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revocations++
	clear(c.byHash)
}
