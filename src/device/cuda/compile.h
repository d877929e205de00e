/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel sources to an image that the driver loads: NVRTC for the device's own
 * architecture, through the cache. Needs no GPU.
 */
#ifndef ARF_DEVICE_CUDA_COMPILE_H
#define ARF_DEVICE_CUDA_COMPILE_H

#include "base/log.h"
#include "device/cuda/cache.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/sources.h"

typedef struct arf_compiler {
    arf_nvrtc nvrtc;
    arf_target target;
    int driver_major; /* part of the key: the driver compiles PTX, and reads machine code */
    const arf_source *sources; /* outlives the compiler */
    uint64_t source_digest;    /* of all names and texts */
    arf_cache cache;
    arf_log log;
    int compiled, reused; /* images made, and images taken from the cache */
} arf_compiler;

/* `capability` 90 for 9.0; `driver_major` 13 for a driver of CUDA 13.x. */
arfuse_status arf_compiler_open(arf_compiler *compiler, int capability, int driver_major,
                                const arf_source *sources, const arf_log *log, arf_error *error);
void arf_compiler_close(arf_compiler *compiler); /* accepts a zeroed one */

typedef struct arf_image {
    void *data; /* machine code, or PTX with its NUL; owned */
    size_t bytes;
} arf_image;

/*
 * Compiles the source `name` with `defines` ("-DARF_HIDDEN=6144", ...), or takes it from the cache.
 * A compiler's complaint becomes the error, with the first lines of its log. One thread a compiler;
 * copies of one may be used at once.
 */
arfuse_status arf_compile(arf_compiler *compiler, const char *name, const char *const *defines,
                          int count, arf_image *image, arf_error *error);
void arf_image_free(arf_image *image); /* accepts a zeroed one */

/* Options of every compilation besides the architecture and the macros; ends with NULL. */
extern const char *const arf_compile_options[];

/* Digest of a table of sources: evidence, and part of every key. */
uint64_t arf_source_digest(const arf_source *sources);

#endif
