// Package httpbody reads the bodies of requests and writes those of answers, with
// patience for slow clients and an end to it: a client may take its time as long
// as it sends, or takes, something.
package httpbody
