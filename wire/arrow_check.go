package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// arrayChecker looks whether arrays hold what they claim before a value is read:
// arrow-go checks little of it.
type arrayChecker struct {
	// dictionaries that were found in order; batches share them.
	dictionaries map[arrow.ArrayData]bool
}

var errShortBuffer = errors.New("a buffer is shorter than its column")

func (c *arrayChecker) check(d arrow.ArrayData) error {
	if d.Len() < 0 || d.Offset() < 0 || d.Len() > math.MaxInt32 || d.Offset() > math.MaxInt32 {
		return errors.New("a column has an impossible length")
	}
	total := d.Offset() + d.Len()
	if bits := bufferAt(d, 0); d.DataType().ID() != arrow.NULL && len(bits) > 0 && len(bits) < (total+7)/8 {
		return errShortBuffer
	}
	if total == 0 {
		return nil
	}
	switch dt := d.DataType().(type) {
	case *arrow.NullType:
		return nil
	case *arrow.DictionaryType:
		return c.checkDictionary(d, dt)
	case *arrow.StringType, *arrow.BinaryType:
		return checkOffsets(d, 4, len(bufferAt(d, 2)))
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return checkOffsets(d, 8, len(bufferAt(d, 2)))
	case arrow.BinaryViewDataType:
		return checkViews(d)
	case *arrow.ListType:
		return c.checkList(d, 4)
	case *arrow.LargeListType:
		return c.checkList(d, 8)
	case *arrow.FixedSizeListType:
		if len(d.Children()) != 1 || int64(d.Children()[0].Len()) < int64(total)*int64(dt.Len()) || dt.Len() < 0 {
			return errors.New("a fixed-size list has too few elements")
		}
		return c.check(d.Children()[0])
	case *arrow.StructType:
		for _, child := range d.Children() {
			if child.Len() < total {
				return errors.New("a field of a struct has too few rows")
			}
			if err := c.check(child); err != nil {
				return err
			}
		}
		return nil
	case arrow.FixedWidthDataType:
		return checkWidth(d, dt.BitWidth())
	default:
		return fmt.Errorf("type %s is not supported", dt)
	}
}

func bufferAt(d arrow.ArrayData, i int) []byte {
	if i < len(d.Buffers()) {
		return bytesOf(d.Buffers()[i])
	}
	return nil
}

func bytesOf(b *memory.Buffer) []byte {
	if b == nil {
		return nil
	}
	return b.Bytes()
}

func checkWidth(d arrow.ArrayData, bits int) error {
	total := int64(d.Offset() + d.Len())
	// A width times a length may pass 64 bits.
	if bits < 0 || int64(bits) > math.MaxInt64/8/total ||
		int64(len(bufferAt(d, 1))) < (total*int64(bits)+7)/8 {
		return errShortBuffer
	}
	return nil
}

func (c *arrayChecker) checkDictionary(d arrow.ArrayData, dt *arrow.DictionaryType) error {
	index, ok := dt.IndexType.(arrow.FixedWidthDataType)
	if !ok || d.Dictionary() == nil {
		return errors.New("a dictionary is missing")
	}
	if err := checkWidth(d, index.BitWidth()); err != nil {
		return err
	}
	values := d.Dictionary()
	if c.dictionaries[values] {
		return nil
	}
	if err := c.check(values); err != nil {
		return err
	}
	if c.dictionaries == nil {
		c.dictionaries = map[arrow.ArrayData]bool{}
	}
	c.dictionaries[values] = true
	return nil
}

func (c *arrayChecker) checkList(d arrow.ArrayData, width int) error {
	if len(d.Children()) != 1 {
		return errors.New("a list has no elements")
	}
	child := d.Children()[0]
	if err := checkOffsets(d, width, child.Len()); err != nil {
		return err
	}
	return c.check(child)
}

// checkOffsets wants offsets that never go back and stay within most.
func checkOffsets(d arrow.ArrayData, width, most int) error {
	offsets := bufferAt(d, 1)
	from, to := d.Offset(), d.Offset()+d.Len()
	if len(offsets)/width < to+1 {
		return errShortBuffer
	}
	last := int64(0)
	for i := from; i <= to; i++ {
		var v int64
		if width == 4 {
			v = int64(int32(binary.LittleEndian.Uint32(offsets[4*i:])))
		} else {
			v = int64(binary.LittleEndian.Uint64(offsets[8*i:]))
		}
		if v < last || v > int64(most) {
			return errors.New("an offset goes back, or beyond what it points into")
		}
		last = v
	}
	return nil
}

// checkViews wants every view's text to lie inside one of the data buffers.
func checkViews(d arrow.ArrayData) error {
	raw := bufferAt(d, 1)
	if len(raw)/arrow.ViewHeaderSizeBytes < d.Offset()+d.Len() {
		return errShortBuffer
	}
	views := arrow.ViewHeaderTraits.CastFromBytes(raw)
	for i := d.Offset(); i < d.Offset()+d.Len(); i++ {
		v := &views[i]
		if v.Len() < 0 {
			return errors.New("a view has a negative length")
		}
		if v.IsInline() {
			continue
		}
		buffer, offset := int(v.BufferIndex()), int(v.BufferOffset())
		if buffer < 0 || offset < 0 || len(bufferAt(d, 2+buffer))-offset < v.Len() {
			return errors.New("a view points outside of its buffers")
		}
	}
	return nil
}
