// Package body reads the JSON bodies of provider APIs strictly: a duplicate name,
// invalid UTF-8, more than 512 levels and anything after the value are errors, and a
// number stays the bytes that came. Every fault names its place, as
// messages[3].content[0].type.
//
//	f, err := body.Read(raw)                    // checks all of raw, once
//	model, err := f.Get("model").String()       // "" where absent or null
//	for _, m := range messages { f, err := m.Fields() … }
//
// Values below what Read has checked are only split, never checked again. All errors
// are *turn.Fault with status 400. Values alias the bytes that were read.
package body
