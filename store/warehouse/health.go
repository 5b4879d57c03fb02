package warehouse

import "time"

// Health tells how a child is.
type Health struct {
	// Up says that a process is there and has the file open; Since, from when on
	// that is or is not so; Why, why it is not.
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	Why   string    `json:"why,omitempty"`
	// Restarts counts the processes that were lost.
	Restarts int64 `json:"restarts"`
	// Resident is the process's memory, in bytes.
	Resident int64 `json:"resident_bytes"`
}

// Health tells how the child is, at once.
func (c *Child) Health() Health {
	c.mu.Lock()
	h := Health{Up: c.now != nil, Since: c.since.UTC(), Restarts: c.lost}
	p, why := c.now, c.why
	c.mu.Unlock()
	if p != nil {
		h.Resident = p.resident()
	} else if why != nil {
		h.Why = why.Error()
	}
	return h
}
