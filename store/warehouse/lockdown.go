package warehouse

import (
	"context"
	"database/sql"
	"fmt"

	"icecore/store/sandbox"
)

// lockdown takes from a database what no SQL of ours needs: files, the network,
// extensions, and at last the power to change that. Its own file, its log and
// its spill directory stay open to it. Settings are final afterwards, so it is
// called last. Calling it twice is the same as once. Ask answers nothing before.
func lockdown(ctx context.Context, db *sql.DB) error {
	var locked bool
	if err := db.QueryRowContext(ctx, `SELECT current_setting('lock_configuration')`).Scan(&locked); err != nil {
		return fmt.Errorf("lock warehouse down: %w", err)
	}
	if locked {
		return nil
	}
	for _, stmt := range []string{
		sandbox.TreeSetting,
		"SET autoinstall_known_extensions = false",
		"SET autoload_known_extensions = false",
		"SET allow_community_extensions = false",
		"SET enable_external_access = false",
		"SET lock_configuration = true",
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("lock warehouse down (%s): %w", stmt, err)
		}
	}
	return nil
}
