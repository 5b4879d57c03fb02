// Command icecore is a trajectory warehouse for reinforcement learning of
// language agents: one binary that takes model calls in, keeps them, and gives
// trajectories out.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run the server."`
	Import  importCmd  `cmd:"" help:"Send traces from files to a server."`
	Export  exportCmd  `cmd:"" help:"Fetch trajectories from a server into a file."`
	Trace   traceCmd   `cmd:"" help:"Follow one sampled response from the engine's body to the delivered row, and compare."`
	Query   queryCmd   `cmd:"" help:"Run SQL on a server, or type it."`
	Report  reportCmd  `cmd:"" help:"Show how rollouts went, per harness, and what one range of policy versions gained over another."`
	Key     keyCmd     `cmd:"" help:"Make, list and revoke keys for the gateway."`
	Verify  verifyCmd  `cmd:"" help:"Check everything that is stored, independently of the code that stored it."`
	Demo    demoCmd    `cmd:"" help:"Start a fresh server, import captured rollouts, and show what became of them."`
	Version versionCmd `cmd:"" help:"Print the version."`

	TestEngine testEngineCmd `cmd:"" help:"Run an inference server without a model, to try a harness and the gateway."`

	Warehouse warehouseCmd `cmd:"" hidden:"" help:"Be the warehouse's process of a server; started by serve."`
}

const description = `A trajectory warehouse for reinforcement learning of language agents.

Start a server, send it traces, pull trajectories:

  icecore serve --data ./data
  icecore import --server http://127.0.0.1:7470 rollouts/
  icecore export --server http://127.0.0.1:7470 --out trajectories.arrow

Every flag can also be set by the environment variable shown beside it.`

func main() {
	keepBlocks()
	ctx, stop := interruptible()
	defer stop()
	var c cli
	k := kong.Must(&c, kong.Name("icecore"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.DefaultEnvars("ICECORE"),
		kong.BindTo(ctx, (*context.Context)(nil)))
	line, err := k.Parse(os.Args[1:])
	if err != nil {
		usageFault(os.Stderr, err)
		os.Exit(exitUsage) //nolint:gocritic // stop would only take down a signal handler
	}
	if err := line.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "icecore: %v\n", err)
		os.Exit(exitStatus(err))
	}
}

// interruptible gives a context that the first interrupt ends; the second ends
// the process.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "icecore: forced to stop; what was acknowledged is safe")
		os.Exit(130)
	}()
	return ctx, cancel
}
