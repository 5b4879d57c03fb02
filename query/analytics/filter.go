package analytics

import "time"

// Keys that rows can be made by. SummaryKeys, UpliftKeys and SplitsKeys say
// which an analysis takes.
const (
	KeyHarness        = "harness"
	KeyHarnessVersion = "harness_version"
	KeyModel          = "model"
	KeyTask           = "task_id"
	KeyGroup          = "group_id"
	KeySplit          = "split"
	KeyVersion        = "policy_version"
	KeyBucket         = "bucket"
)

// Filter selects rollouts. Empty fields select all; each list means "one of".
type Filter struct {
	Harnesses []string
	Models    []string
	TaskIDs   []string
	GroupIDs  []string
	Splits    []string
	// VersionMin and VersionMax select rollouts whose policy versions are all at
	// least, at most, this. A rollout without versions passes neither.
	VersionMin *int64
	VersionMax *int64
	// Since and Until select rollouts that began at Since or later, before Until.
	Since *time.Time
	Until *time.Time
}

func (f *Filter) lists() []any {
	return []any{list(f.Harnesses), list(f.Models), list(f.TaskIDs), list(f.GroupIDs)}
}

func (f *Filter) versions() []any { return []any{optional(f.VersionMin), optional(f.VersionMax)} }

func (f *Filter) times() []any { return []any{timeText(f.Since), timeText(f.Until)} }

// microseconds is how the API writes a time.
const microseconds = "2006-01-02T15:04:05.000000Z"

func timeText(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format(microseconds)
}

// Keys are the values that a row stands for, by key.
type Keys map[string]any

// only keeps the keys that were asked for. A bucket is shown by its beginning.
func (k Keys) only(by []string) Keys {
	out := Keys{}
	for _, name := range by {
		out[name] = k[name]
		if text, ok := k[name].(string); ok && name == KeyBucket {
			out[name] = rfc3339(text, time.RFC3339)
		}
	}
	return out
}

// arrowTimes are the forms in which arrow-go writes a timestamp with a zone.
var arrowTimes = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z0700"}

// rfc3339 writes a time of an answer in another form; what it cannot read stays
// as it is.
func rfc3339(text, as string) string {
	for _, form := range arrowTimes {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC().Format(as)
		}
	}
	return text
}
