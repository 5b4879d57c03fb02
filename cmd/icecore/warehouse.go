package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"

	"icecore/store"
	"icecore/store/warehouse"
	"icecore/verify"
)

// warehouseCmd is the process in which a server has its DuckDB.
type warehouseCmd struct{}

func (warehouseCmd) Run() error {
	return warehouse.Serve(warehouse.Serving{Functions: store.Functions(), Extra: besideWarehouse})
}

// warehouseProcess makes the command that is the warehouse's process. It is this
// very program, also when its file was replaced or removed meanwhile.
func warehouseProcess() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "warehouse") //nolint:noctx // its life is not a call's: it ends with its control socket
	cmd.Args[0] = "icecore"
	return cmd
}

// verifyPath is what the warehouse's process does beside the warehouse's own.
const verifyPath = "/verify"

type verifyCall struct {
	// Control is the file of the control database.
	Control string `json:"control"`
	Through int64  `json:"through"`
}

func besideWarehouse(e *warehouse.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+verifyPath, func(w http.ResponseWriter, r *http.Request) {
		report, err := verifyBeside(r, e)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(report) // whoever asked sees that it was cut
	})
	return mux
}

func verifyBeside(r *http.Request, e *warehouse.Engine) (*verify.Report, error) {
	var call verifyCall
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	control, err := store.ReadControl(call.Control)
	if err != nil {
		return nil, err
	}
	defer control.Close() //nolint:errcheck // it was only read
	defer e.Hold()()
	return verify.Run(r.Context(), verify.Source{Control: control, Warehouse: e.DB(), ThroughBatch: call.Through}, verify.Options{})
}
