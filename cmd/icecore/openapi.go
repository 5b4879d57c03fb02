package main

import (
	"icecore/openapi"
	"icecore/trace"
)

// document describes the API with this server's own limits.
func (s *server) document() (*openapi.Document, error) {
	ingest, err := s.cfg.ingestOptions(s.log)
	if err != nil {
		return nil, err
	}
	ingest = ingest.WithDefaults()
	sql, err := s.sqlOptions()
	if err != nil {
		return nil, err
	}
	return openapi.New(openapi.Options{
		Version:          version,
		BaseURL:          "http://" + s.addr,
		Profile:          s.cfg.Profile,
		Gateway:          s.gateway != nil,
		MaxRequestBytes:  ingest.MaxRequestBytes,
		MaxItems:         ingest.Limits.MaxItems,
		MaxTokens:        ingest.Limits.MaxTokens,
		MaxBodyBytes:     int64(ingest.Limits.MaxBodyBytes),
		MaxJSONDepth:     trace.DefaultMaxJSONDepth,
		MaxOpen:          ingest.MaxOpen,
		MaxBufferedBytes: ingest.MaxBufferedBytes,
		ReadTimeout:      ingest.ReadTimeout,
		GroupQuiet:       s.cfg.GroupQuiet,
		IncompleteWait:   s.cfg.IncompleteWait,
		SQLRunning:       sql.Running,
		SQLWaiting:       max(sql.Waiting, 0),
		SQLTimeout:       sql.Timeout,
		SQLMaxTimeout:    sql.MaxTimeout,
		SQLMaxRows:       sql.MaxRows,
		SQLMaxBytes:      sql.MaxBytes,
	})
}
