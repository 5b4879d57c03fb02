package warehouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Parent and child speak HTTP over pairs of connected sockets. The child is
// started with one, the control socket; for each connection the parent makes
// another pair and sends one end over the control socket. So there is no path,
// no port, nobody else who could connect, and nothing is left behind. The
// control socket's end is the parent's end.

// socketBytes is what a socket may buffer each way; the kernel may give less.
const socketBytes = 1 << 20

// socketPair makes two connected sockets.
func socketPair(kind int) (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	for _, fd := range fds {
		// Smaller buffers only cost time.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBytes)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBytes)
	}
	theirs = os.NewFile(uintptr(fds[1]), "warehouse")
	if ours, err = connOf(os.NewFile(uintptr(fds[0]), "warehouse")); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// connOf makes a connection of a socket, and closes f.
func connOf(f *os.File) (net.Conn, error) {
	conn, err := net.FileConn(f) // it works on a duplicate
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("use a socket: %w", err)
	}
	return conn, nil
}

// dialer is the parent's end of a control socket.
type dialer struct{ control *net.UnixConn }

// sendPatience bounds the sending of a socket: a child that is stopped does not
// read.
const sendPatience = 5 * time.Second

var (
	// errUnsent says that a request was not sent: no connection could be made.
	errUnsent = errors.New("connect to the warehouse's process")
	// errNoSocket says that it is for want of a socket, and not the child's fault.
	errNoSocket = errors.New("no socket could be made")
)

func noSocket(err error) error { return fmt.Errorf("%w: %w: %w", errUnsent, errNoSocket, err) }

// dial makes a connection to the child. Its signature is http.Transport's.
func (d dialer) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, noSocket(err)
	}
	defer theirs.Close() //nolint:errcheck // it is the child's now, or nobody's
	raw, err := theirs.SyscallConn()
	if err == nil {
		err = d.control.SetWriteDeadline(time.Now().Add(sendPatience))
	}
	if err == nil {
		var sendErr error
		err = raw.Control(func(fd uintptr) {
			_, _, sendErr = d.control.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
		})
		err = errors.Join(err, sendErr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errUnsent, err), ours.Close())
	}
	return ours, nil
}

// listener is the child's end of the control socket.
type listener struct {
	control *net.UnixConn
	// gone is called when the parent has closed its end, or is dead.
	gone func()
	once sync.Once
}

// Accept gives the next connection that the parent has made.
func (l *listener) Accept() (net.Conn, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := l.control.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil || n == 0 {
		l.once.Do(l.gone)
		return nil, net.ErrClosed
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("accept: the control socket gave %d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("accept: the control socket gave %d sockets: %w", len(fds), err)
	}
	return connOf(os.NewFile(uintptr(fds[0]), "warehouse"))
}

// Close implements net.Listener.
func (l *listener) Close() error { return l.control.Close() }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.control.LocalAddr() }
