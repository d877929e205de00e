/* SPDX-License-Identifier: Apache-2.0 */
/* The files of kernels/, embedded at build time by scripts/embed-sources. */
#ifndef ARF_DEVICE_CUDA_SOURCES_H
#define ARF_DEVICE_CUDA_SOURCES_H

#include <stdint.h>

/* The generated table has exactly this layout: two pointers and a 64-bit count an entry. */
typedef struct arf_source {
    const char
        *name; /* as #include "..." says it: "ll.cu", "primitives.cuh"; NULL ends the table */
    const char *text; /* NUL-terminated */
    uint64_t bytes;   /* without the NUL */
} arf_source;

extern const arf_source arf_sources[];

#endif
