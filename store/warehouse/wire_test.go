package warehouse

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// An answer that was cut anywhere is never taken for a whole one.
func TestCutAnswers(t *testing.T) {
	t.Parallel()
	for _, batches := range []int{0, 1, 3} {
		var whole bytes.Buffer
		w := newRowWriter(&whole)
		for i := range batches {
			require.NoError(t, w.write(numbers(int64(i), 2, 7)))
		}
		require.NoError(t, w.end(outcome{Reply: &Reply{Rows: int64(3 * batches)}}))
		seen := 0
		count := func(arrow.RecordBatch) error { seen++; return nil }
		o, err := readRows(bytes.NewReader(whole.Bytes()), count)
		require.NoError(t, err)
		require.Equal(t, batches, seen)
		require.EqualValues(t, 3*batches, o.Reply.Rows)
		for n := range whole.Len() {
			_, err := readRows(bytes.NewReader(whole.Bytes()[:n]), count)
			require.ErrorIs(t, err, errCut, "%d of %d bytes", n, whole.Len())
		}
	}
}

// So it is with an apply, whose last word comes after what readApply reads.
func TestCutApplies(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	body := newApplyBody(append(add(numbers(1, 2), numbers(3)), Addition{Table: "others"}), []string{"DELETE FROM ice.others"}, nil, nil)
	body.last <- doCommit
	_, err := body.WriteTo(&whole)
	require.NoError(t, err)
	r := bytes.NewReader(whole.Bytes())
	adds, stmts, err := readApply(r)
	require.NoError(t, err)
	require.Equal(t, []string{"DELETE FROM ice.others"}, stmts)
	require.Len(t, adds, 1)
	require.Len(t, adds[0].Records, 2)
	release(adds)
	last, err := r.ReadByte()
	require.NoError(t, err)
	require.EqualValues(t, doCommit, last)
	require.Zero(t, r.Len())
	for n := range whole.Len() - 1 {
		r := bytes.NewReader(whole.Bytes()[:n])
		adds, _, err := readApply(r)
		release(adds)
		if err == nil { // Arrow does not miss the end of its last stream
			require.Zero(t, r.Len(), "there is a last word after %d of %d bytes", n, whole.Len())
			continue
		}
		require.ErrorIs(t, err, errCut, "%d of %d bytes", n, whole.Len())
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		err := failOf(errors.Join(errors.New("something"), kind)).err()
		require.ErrorIs(t, err, kind, name)
		require.ErrorContains(t, err, "something")
		for other, kind := range kinds {
			if other != name {
				require.NotErrorIs(t, err, kind, name)
			}
		}
	}
	require.NoError(t, failOf(nil).err())
}
