/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of a profiler (NVTX 3, whose headers come with the toolkit and need no library). A
 * profiler is found once, when the device is opened: NVTX reads NVTX_INJECTION64_PATH then, loads
 * what it names, and asks for nothing later. Without a profiler nothing here is ever called by a
 * launch; with one, what a call costs beside the launch is the profiler's: it may allocate and
 * lock.
 */
#ifndef ARF_DEVICE_CUDA_RANGES_H
#define ARF_DEVICE_CUDA_RANGES_H

/* The domain "arfuse", or NULL when no profiler listens or the build had no NVTX headers. */
void *arf_ranges_open(void);
void arf_ranges_close(void *domain); /* accepts NULL */

/* Of the calling thread; they nest. `text` is copied by who listens. */
void arf_ranges_begin(void *domain, const char *text);
void arf_ranges_end(void *domain);

#endif
