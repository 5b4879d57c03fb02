// Package table writes the result of a statement in the formats that HTTP knows:
// Arrow, JSON, NDJSON, CSV and Parquet. It takes Arrow record batches, and says
// their types in DuckDB's words.
package table
