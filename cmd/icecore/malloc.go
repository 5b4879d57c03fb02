package main

/*
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stddef.h>

// glibc gives large blocks back to the kernel at once and faults them in again
// for the next scan, which costs a warm DuckDB scan most of its speed. These
// thresholds keep them; the price is some hundred megabytes of resident memory.
static void keep_blocks(void) {
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 16 << 20);
#endif
}
*/
import "C"

func keepBlocks() { C.keep_blocks() }
