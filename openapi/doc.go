// Package openapi describes the HTTP API: as an OpenAPI 3.1 document at
// /openapi.json, and as a page to be read at /docs.
//
// The document is written by hand, in api/*.yaml. Three things are filled in
// when it is made:
//
//   - ${name} in any text is a limit of the server that serves it, see Options;
//   - x-errors of an operation lists codes of package problem, and becomes
//     responses by status, with what the catalogue says about each code;
//   - a path with x-only-with is there only when the server runs with that flag.
package openapi
