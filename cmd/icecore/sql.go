package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"icecore/query/sqlapi"
)

// sqlConfig is what SQL over HTTP can be told.
type sqlConfig struct {
	SQLRunning    int           `help:"Statements of SQL that run at once; 0: the processors, at least 2." default:"0" name:"sql-running"`
	SQLWaiting    int           `help:"Statements of SQL that may wait or be answered beside them; more are answered 429." default:"32" name:"sql-waiting"`
	SQLTimeout    time.Duration `help:"Time limit of a statement that names none." default:"60s" name:"sql-timeout"`
	SQLMaxTimeout time.Duration `help:"Greatest time limit that a statement may name." default:"10m" name:"sql-max-timeout"`
	SQLMaxRows    int64         `help:"Most rows of a result." default:"1000000" name:"sql-max-rows"`
	SQLMaxBytes   string        `help:"Most bytes of a result, as columns (${default})." default:"256MiB" placeholder:"SIZE" name:"sql-max-bytes"`
}

// sqlOptions is what the handlers of SQL are told.
func (s *server) sqlOptions() (sqlapi.Options, error) {
	c := s.cfg
	for flag, n := range map[string]int64{"--sql-running": int64(c.SQLRunning), "--sql-waiting": int64(c.SQLWaiting),
		"--sql-timeout": int64(c.SQLTimeout) - 1, "--sql-max-timeout": int64(c.SQLMaxTimeout - c.SQLTimeout), "--sql-max-rows": c.SQLMaxRows - 1} {
		if n < 0 {
			return sqlapi.Options{}, fmt.Errorf("%s: is too small", flag)
		}
	}
	sizes, err := parseSizes(map[string]string{"--sql-max-bytes": c.SQLMaxBytes})
	if err != nil {
		return sqlapi.Options{}, err
	}
	if sizes["--sql-max-bytes"] == 0 {
		return sqlapi.Options{}, errors.New("--sql-max-bytes: is too small")
	}
	o := sqlapi.Options{Running: c.SQLRunning, Waiting: c.SQLWaiting, Timeout: c.SQLTimeout, MaxTimeout: c.SQLMaxTimeout,
		MaxRows: c.SQLMaxRows, MaxBytes: sizes["--sql-max-bytes"], TempDir: c.TempDir, Patience: c.ReadTimeout, Log: s.log}
	if o.Waiting == 0 {
		o.Waiting = -1
	}
	if o.TempDir == "" {
		o.TempDir = filepath.Join(c.Data, "tmp")
	}
	return o.WithDefaults(), nil
}
