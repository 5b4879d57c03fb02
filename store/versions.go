package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// AnnouncedVersion is the policy version that is served of a model, as a trainer said.
type AnnouncedVersion struct {
	// Model is empty for all models that were not named themselves since.
	Model         string
	PolicyVersion int64
	// At is since when it is served, in microseconds since the Unix epoch, UTC.
	At int64
	// ToldAt is when that was said.
	ToldAt int64
}

// ErrOutdated says that something newer is known already.
var ErrOutdated = errors.New("something newer is known already")

// AnnounceVersion takes over which policy version is served of a model, or of all
// models, of which those named before are forgotten. at is since when; nil: since now.
// A lower version than before is a rollback, and taken. What is said to hold since
// before that which counts is ErrOutdated: news may overtake each other. It gives what
// counts afterwards.
func (s *Store) AnnounceVersion(ctx context.Context, model string, version int64, at *int64) (now AnnouncedVersion, err error) {
	err = s.decide(ctx, func(ctx context.Context, k *commit) (refused, err error) {
		told := AnnouncedVersion{Model: model, PolicyVersion: version, At: k.now, ToldAt: k.now}
		if at != nil {
			told.At = *at
		}
		// Of all models the newest is in the way, of one its own or that of all.
		err = k.c.conn.QueryRowContext(ctx, `SELECT model, policy_version, at, told_at FROM policy_versions
			WHERE ?1 = '' OR model IN (?1, '') ORDER BY at DESC, model DESC LIMIT 1`, model).
			Scan(&now.Model, &now.PolicyVersion, &now.At, &now.ToldAt)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return nil, fmt.Errorf("look up policy version: %w", err)
		case err == nil && now.At > told.At:
			return ErrOutdated, nil
		}
		now = told
		if model == "" {
			if err := k.exec(ctx, "forget policy versions", `DELETE FROM policy_versions`); err != nil {
				return nil, err
			}
		}
		return nil, k.exec(ctx, "keep policy version", `INSERT OR REPLACE INTO policy_versions (model, policy_version, at, told_at)
			VALUES (?,?,?,?)`, model, told.PolicyVersion, told.At, told.ToldAt)
	})
	if errors.Is(err, ErrOutdated) {
		return now, err
	}
	// Also after a fault: it may have become durable.
	return now, errors.Join(err, s.loadVersions(ctx))
}

// Versions lists what was announced, by model.
func (s *Store) Versions(ctx context.Context) (list []AnnouncedVersion, err error) {
	rs, err := s.control.read.QueryContext(ctx, `SELECT model, policy_version, at, told_at FROM policy_versions ORDER BY model`)
	if err != nil {
		return nil, fmt.Errorf("read policy versions: %w", err)
	}
	defer rs.Close() //nolint:errcheck // Err below says what went wrong
	for rs.Next() {
		var v AnnouncedVersion
		if err := rs.Scan(&v.Model, &v.PolicyVersion, &v.At, &v.ToldAt); err != nil {
			return nil, fmt.Errorf("read policy versions: %w", err)
		}
		list = append(list, v)
	}
	return list, rs.Err()
}

// VersionOf is the policy version that was announced for a model, or for all; nil:
// none was. It reads memory alone.
func (s *Store) VersionOf(model string) *int64 {
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	v, ok := s.versions.of[model]
	if !ok {
		v, ok = s.versions.of[""]
	}
	if !ok {
		return nil
	}
	return &v
}

// versions holds what was announced.
type versions struct {
	mu sync.Mutex
	of map[string]int64
}

// loadVersions reads all of it anew. Several that do so at once end with the newest:
// each reads under the lock.
func (s *Store) loadVersions(ctx context.Context) error {
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	list, err := s.Versions(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	s.versions.of = map[string]int64{}
	for _, v := range list {
		s.versions.of[v.Model] = v.PolicyVersion
	}
	return nil
}
