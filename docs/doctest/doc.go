// Package doctest tests the documents: every command and Python example of
// README.md, docs/*.md and the client's README runs against a real server, and
// what stands below it is what it must answer. README's own conventions:
//
//	```sh      runs in bash; fences of a page share a directory and a server
//	```python  runs in the interpreter that ICECORE_PYTHON names, with the client
//	           of clients/python on its path
//	```json    right after one of these: what it printed, as JSON values
//	```text    the same, line by line
//
// In what was printed, … stands for anything: as a JSON value, as a JSON key for
// further keys, inside a line, and as a line of its own for any lines. Two times
// count as equal. A fence below <!-- server stopped --> runs while no server
// does. `bin/icecore test-engine` starts an engine for the rest of the page, and
// `bin/icecore serve` with --engine or --gateway the page's server anew.
package doctest
