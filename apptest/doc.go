// Package apptest tests the whole: it builds the icecore binary, runs it as a
// process on a fresh directory, and speaks to it as others do, over HTTP and
// through its command line. Nothing is mocked, and nothing of the server is
// called.
//
// ICECORE_BINARY names a binary to test instead of building one, APPTEST_RACE=1
// builds it with the race detector, ICECORE_PYTHON names a Python with pyarrow
// and, beside it, schemathesis.
package apptest
