package turn

import (
	"net/http"
	"net/url"
)

// Provider is one API that harnesses speak. It holds no state.
type Provider interface {
	// API is the name in traces, as openai.chat.
	API() string
	// Decode reads a body of this API. The error is a *Fault.
	Decode(in Incoming) (*Request, error)
	// Stream begins an answer that goes out as events.
	Stream(r *Request, h Head) Stream
	// Whole gives the body of an answer that goes out in one piece, as JSON.
	Whole(r *Request, a *Answer) ([]byte, error)
	// Fault gives status, headers and body for a fault before the answer began.
	Fault(f *Fault) (status int, header http.Header, body []byte)
}

// Incoming is a request as it reached the gateway.
type Incoming struct {
	// Body is inflated.
	Body []byte
	// Header never goes to an engine. Its secrets are taken out.
	Header http.Header
	// Path is what stands after the rollout's id and an optional v1/: as
	// chat/completions, or v1beta/models/m:streamGenerateContent.
	Path  string
	Query url.Values
}

// Stream writes one answer as events. Every method appends to dst what is to be
// sent, which may be nothing. Order: Start once, then Delta and Heartbeat as they
// come, then either End once or Fail once.
type Stream interface {
	// Start is called when the engine has accepted the call.
	Start(dst []byte) []byte
	Delta(dst []byte, d Delta) []byte
	// Heartbeat shows a waiting harness that the answer goes on.
	Heartbeat(dst []byte) []byte
	// End closes the answer. It is called once every choice has ended, and what it gives
	// is sent once the traces are durable, so nothing before it may make the answer
	// complete in the eyes of the harness: no finish reason, and no closing event of the
	// last item.
	End(dst []byte, ends []End, u Usage) []byte
	// Fail writes the error event of the API. The connection is broken afterwards.
	Fail(dst []byte, f *Fault) []byte
}

// Flagger is a Stream that can say what was wrong with the answer that it wrote, in
// stable words for the trace. It is asked after End.
type Flagger interface {
	Flags() []string
}

// WholeFlagger is a Provider that can say the same of an answer in one piece.
type WholeFlagger interface {
	WholeFlags(r *Request, a *Answer) []string
}
