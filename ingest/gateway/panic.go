package gateway

import (
	"fmt"
	"runtime/debug"
)

// safely turns a panic into an error, and logs where it came from: the error goes into
// traces and must not hold the gateway's inside. where names the call.
func (g *Gateway) safely(where string, f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("gateway: panicked", "at", where, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	f()
	return nil
}
