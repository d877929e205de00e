/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of compiled kernels in the user's cache: private, whole entries only,
 * and never trusted. An entry that is absent, damaged, a link, of another owner or
 * writable by others reads as "not there", and is compiled again and replaced.
 * Any number of processes may read and write at once: an entry appears by rename.
 */
#ifndef ARF_DEVICE_CUDA_CACHE_H
#define ARF_DEVICE_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

typedef struct arf_cache {
    char folder[4096]; /* "": nothing is cached */
} arf_cache;

/* Two digests of everything that decides the entry's bytes. */
typedef struct arf_cache_key {
    uint64_t digest[2];
} arf_cache_key;

/* Far above any kernel's machine code; a longer file is no entry. */
#define ARF_CACHE_MAX_BYTES ((size_t)64 << 20)

/*
 * $XDG_CACHE_HOME/arfuse, else $HOME/.cache/arfuse, made with mode 0700. Where none can be had, or
 * it is not this user's alone, the reason is logged once and nothing is cached.
 */
void arf_cache_open(arf_cache *cache, const arf_log *log);

/* True with the entry's bytes, which the caller frees. */
bool arf_cache_read(const arf_cache *cache, arf_cache_key key, void **data, size_t *bytes);

/* A failure costs the next start a compilation, no more: it is logged and forgotten. */
void arf_cache_write(const arf_cache *cache, arf_cache_key key, const void *data, size_t bytes,
                     const arf_log *log);

#endif
