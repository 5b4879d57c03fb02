package warehouse

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sys/unix"

	"icecore/failpoint"
)

// Serving is what a child brings that its parent cannot tell it.
type Serving struct {
	// Functions are those of Options.
	Functions []Function
	// Extra, when set, makes what is served beside the warehouse's own calls, for
	// Child.Call.
	Extra func(*Engine) http.Handler
}

// controlFD is the control socket in a child.
const controlFD = 3

// Serve is the life of a child's process. It ends the process as soon as the
// parent has closed the control socket or is dead, whatever goes on: nobody is
// left to be answered, and what is not committed has not happened. It comes back
// only with an error, when nobody has started this process as a child.
func Serve(with Serving) error {
	yieldToServer()
	return serve(with, func(ctx context.Context, e *Engine, a Ask, each func(arrow.RecordBatch) error) (Reply, error) {
		return e.Ask(ctx, a, each)
	})
}

type askFunc func(context.Context, *Engine, Ask, func(arrow.RecordBatch) error) (Reply, error)

func serve(with Serving, ask askFunc) error {
	// A terminal's interrupt goes to all its processes. The parent stops this one
	// when it has drained.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	// Started otherwise, the descriptor may be something of Go's own.
	if kind, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return errors.New("serve the warehouse: there is no control socket; icecore serve starts this process itself")
	}
	conn, err := connOf(os.NewFile(controlFD, "control"))
	if err != nil {
		return fmt.Errorf("serve the warehouse: %w", err)
	}
	s := &server{with: with, ask: ask, asks: map[int64]chan struct{}{}}
	h := &http.Server{Handler: dying(s.routes())} //nolint:gosec // its only client is the parent, which waits as long as it likes
	err = h.Serve(&listener{control: conn.(*net.UnixConn), gone: func() { os.Exit(0) }})
	return fmt.Errorf("serve the warehouse: %w", err)
}

// dying ends the process when a call panics: what it left half done goes with
// it, and the parent starts another.
func dying(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				fmt.Fprintf(os.Stderr, "%s panicked: %v\n%s", r.URL.Path, p, debug.Stack())
				os.Exit(2)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// server is the child's side of the calls.
type server struct {
	with Serving
	ask  askFunc

	mu     sync.Mutex
	engine *Engine
	others http.Handler
	asks   map[int64]chan struct{} // running; closed when over
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	for path, do := range map[string]func(ctx context.Context, e *Engine, body []byte) (outcome, error){
		"/int": func(ctx context.Context, e *Engine, body []byte) (o outcome, err error) {
			o.Value, err = e.Int(ctx, string(body))
			return o, err
		},
		"/checkpoint": func(ctx context.Context, e *Engine, _ []byte) (o outcome, err error) {
			if err := failpoint.Hit("child.checkpoint"); err != nil {
				return o, err
			}
			o.Yes, err = e.Checkpoint(ctx)
			return o, err
		},
		"/heal": func(ctx context.Context, e *Engine, _ []byte) (o outcome, err error) {
			o.Yes, err = e.Heal(ctx)
			return o, err
		},
		"/close": func(_ context.Context, e *Engine, _ []byte) (outcome, error) { return outcome{}, e.Close() },
		"/wait":  s.waitAsk,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			e := s.opened()
			if err == nil && e == nil {
				err = errNotOpen
			}
			var o outcome
			if err == nil {
				o, err = do(r.Context(), e, body)
			}
			s.answer(newRowWriter(w), o, err)
		})
	}
	mux.HandleFunc("POST /open", s.open)
	mux.HandleFunc("POST /query", s.query)
	mux.HandleFunc("POST /apply", s.apply)
	mux.HandleFunc("POST /ask", s.serveAsk)
	mux.HandleFunc("/extra/", func(w http.ResponseWriter, r *http.Request) {
		if s.opened() == nil || s.others == nil {
			http.NotFound(w, r)
			return
		}
		http.StripPrefix("/extra", s.others).ServeHTTP(w, r)
	})
	return mux
}

var errNotOpen = errors.New("the warehouse was not opened yet")

func (s *server) opened() *Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine
}

// answer ends an answer. That it cannot be sent is the parent's matter, which
// sees that it was cut.
func (s *server) answer(w *rowWriter, o outcome, err error) {
	o.Failed = failOf(err)
	_ = w.end(o)
}

// opening is what the parent says first.
type opening struct {
	Path    string  `json:"path"`
	Options Options `json:"options"`
}

func (s *server) open(w http.ResponseWriter, r *http.Request) {
	var what opening
	err := json.NewDecoder(r.Body).Decode(&what)
	if err == nil {
		err = s.openEngine(what)
	}
	s.answer(newRowWriter(w), outcome{}, err)
}

func (s *server) openEngine(what opening) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine != nil {
		return errors.New("the warehouse is open already")
	}
	what.Options.Functions = s.with.Functions
	what.Options.Hook = func() { _ = failpoint.Hit("child.migrate") }
	e, err := Open(what.Path, what.Options)
	if err != nil {
		return err
	}
	s.engine = e
	if s.with.Extra != nil {
		s.others = s.with.Extra(e)
	}
	return nil
}

// queryCall is a query on its way.
type queryCall struct {
	Text string  `json:"text"`
	Args []value `json:"args,omitempty"`
}

func (s *server) query(w http.ResponseWriter, r *http.Request) {
	out := newRowWriter(w)
	err := func() error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return cutShort(err)
		}
		var q queryCall
		if err := json.Unmarshal(body, &q); err != nil {
			return fmt.Errorf("query warehouse: %w", err)
		}
		args, err := anyOf(q.Args)
		if err != nil {
			return err
		}
		e := s.opened()
		if e == nil {
			return errNotOpen
		}
		if err := failpoint.Hit("child.query"); err != nil {
			return err
		}
		return e.Query(r.Context(), out.write, q.Text, args...)
	}()
	s.answer(out, outcome{}, err)
}

func (s *server) apply(w http.ResponseWriter, r *http.Request) {
	out := newRowWriter(w)
	err := func() error {
		e := s.opened()
		if e == nil {
			return errNotOpen
		}
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			return fmt.Errorf("write to warehouse: %w", err)
		}
		in := bufio.NewReaderSize(r.Body, 64<<10)
		adds, stmts, err := readApply(in)
		defer release(adds)
		if err != nil {
			return err
		}
		before := func() error {
			if _, err := w.Write([]byte{allAppended}); err != nil {
				return cutShort(err)
			}
			if err := control.Flush(); err != nil {
				return cutShort(err)
			}
			last, err := in.ReadByte()
			if err != nil {
				return cutShort(err)
			}
			// net/http must see the end of the request before that of the answer.
			if _, err := io.Copy(io.Discard, in); err != nil {
				return cutShort(err)
			}
			if last != doCommit {
				return errApplyOver
			}
			return failpoint.Hit("child.apply.before_commit")
		}
		if err := e.Apply(r.Context(), adds, before, stmts...); err != nil {
			return err
		}
		return failpoint.Hit("child.apply.after_commit")
	}()
	s.answer(out, outcome{}, err)
}
