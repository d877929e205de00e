/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling ahead: many kernels at once, by several threads, into the cache, so that plans are made
 * ready one after the other without waiting for a compiler.
 */
#ifndef ARF_DEVICE_CUDA_AHEAD_H
#define ARF_DEVICE_CUDA_AHEAD_H

#include "device/cuda/compile.h"
#include "device/cuda/recipe.h"

/* A thread more takes some 20 MiB (tests/bench/compile_bench.c): the limit bounds memory, too. */
#define ARF_AHEAD_THREADS 16

/* One step's kernel with its macros, as arf_compile. */
arfuse_status arf_compile_step(arf_compiler *compiler, const arf_step *step, arf_image *image,
                               arf_error *error);

/*
 * Compiles each step's kernel that is not in the cache; the calling thread works too. Without a
 * cache nothing is done. A step that does not compile is left: whoever makes it ready gets the
 * compiler's complaint. Counts in compiler->compiled.
 */
void arf_compile_ahead(arf_compiler *compiler, const arf_step *step, int count, int threads);

/* Threads that a process may use, of `processes` that share its cores: 1 to the limit above. */
int arf_ahead_threads(int processes);

/* Of `macros` and name: equal for steps that share a kernel. */
uint64_t arf_step_digest(const arf_step *step);

#endif
