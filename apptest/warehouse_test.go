package apptest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// warehouseStatus is what /v1/status says of the warehouse's process.
type warehouseStatus struct {
	Warehouse struct {
		Up       bool   `json:"up"`
		Since    string `json:"since"`
		Why      string `json:"why"`
		Restarts int    `json:"restarts"`
		Resident int64  `json:"resident_bytes"`
	} `json:"warehouse"`
	WarehouseError string           `json:"warehouse_error"`
	Memory         map[string]int64 `json:"duckdb_memory_bytes"`
}

func (s *server) warehouse() (w warehouseStatus) {
	s.t.Helper()
	s.get("/v1/status").is(200).into(&w)
	return w
}

// killWarehouse kills the warehouse's process.
func (s *server) killWarehouse() {
	s.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
	require.NoError(s.t, err)
	killed := 0
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // that thread has ended
		}
		for pid := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(pid)
			require.NoError(s.t, err)
			require.NoError(s.t, syscall.Kill(n, syscall.SIGKILL))
			killed++
		}
	}
	require.Equal(s.t, 1, killed)
}

// The warehouse's process may die at any time: it is back at once, twice as
// well, and what was stored is there.
func TestWarehouseComesBack(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.faulty = true
	w := s.warehouse()
	require.True(t, w.Warehouse.Up)
	require.NotEmpty(t, w.Warehouse.Since)
	require.Positive(t, w.Warehouse.Resident)
	for i := range 3 {
		id := itoa(i)
		s.traces(plain("r"+id, "t"+id, 1, ids(1, 2), ids(3))).is(200)
		s.killWarehouse()
		s.traces(plain("r"+id, "u"+id, 2, ids(1, 2, 3, 4), ids(5))).is(200)
		s.get("/readyz").is(200)
		s.get("/v1/traces/t" + id).is(200)
		s.get("/v1/traces/u" + id).is(200)
		require.Len(t, s.export("").rows, i+1)
	}
	eventually(t, "all three are counted", func() bool { return s.warehouse().Warehouse.Restarts == 3 })
	m := s.metrics()
	require.Equal(t, []sample{{`reason="killed"`, 3}}, m["icecore_warehouse_restarts_total"])
	require.Equal(t, 1.0, m["icecore_warehouse_up"][0].value)
	require.Positive(t, m["icecore_warehouse_resident_bytes"][0].value)
	require.NotEmpty(t, s.warehouse().Memory)
	s.send("POST", "/v1/verify", nil).is(200)
}

// While the warehouse cannot be opened, what comes is taken all the same, and
// whoever asks is told why. Nothing is set aside behind anybody's back.
func TestWarehouseAway(t *testing.T) {
	t.Parallel()
	s := start(t, "--checkpoint-every=1h")
	s.faulty = true
	s.send("POST", "/v1/traces?ack=queryable", plain("a", "a1", 1, ids(1), ids(2)).json(), "Content-Type", typeJSON).is(200)
	file := filepath.Join(s.dir, "warehouse.duckdb")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("garbage "), 4096), 0o600))
	s.killWarehouse()
	eventually(t, "it says why", func() bool { return strings.Contains(s.warehouse().Warehouse.Why, "cannot be read") })
	w := s.warehouse()
	require.False(t, w.Warehouse.Up)
	require.NotEmpty(t, w.WarehouseError)
	require.Equal(t, 0.0, s.metrics()["icecore_warehouse_up"][0].value)
	for i := range 5 {
		s.traces(plain("a", "b"+itoa(i), int64(2+i), ids(1, int32(i)), ids(2))).is(200)
	}
	s.get("/readyz").is(200)
	aside, err := filepath.Glob(filepath.Join(s.dir, "*aside*"))
	require.NoError(t, err)
	require.Empty(t, aside)
	require.NoError(t, os.WriteFile(file, good, 0o600))
	eventually(t, "it is back", func() bool { return s.warehouse().Warehouse.Up })
	for i := range 5 {
		s.get("/v1/traces/b" + itoa(i)).is(200)
	}
}

// Started by hand it says what it is for.
func TestWarehouseByHand(t *testing.T) {
	t.Parallel()
	_, stderr, err := command(t, nil, "warehouse")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Contains(t, stderr, "icecore serve starts this process itself")
}
