/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL composition, a rival that a model can have without arfuse: separate kernels around the
 * library's collectives. It runs in a space of its own, on a second device of the same team on
 * which no memory is shared, so that its fixed form goes by NCCL as well.
 */
#ifndef TESTS_BENCH_GPU_COMPOSITION_H
#define TESTS_BENCH_GPU_COMPOSITION_H

#include "bench/gpu/race.h"

typedef struct composition {
    bool open;
    char why[256];            /* ... it is not */
    arf_tune_options options; /* the run's, with any numerics */
    arf_tuner tuner;          /* the run's, with the second device */
    arf_bench bench;
    bool sound[ARF_PATTERNS], checked[ARF_PATTERNS]; /* the bits of the fixed form */
    int wrong;
} composition;

/* Collective. ARFUSE_OK also where NCCL does not serve: `why` says so then, equal on all ranks. */
arfuse_status composition_open(const arf_tuner *tuner, const arf_problem *problem,
                               const arf_tokens *tokens, composition *c, arf_error *error);
void composition_close(composition *c); /* accepts one that is not open */

/*
 * Collective. Times both forms at a row, with the row's fastest unfused kernels, into
 * row->composed. The fixed form's bits are compared first; the library's order of sums is its own,
 * so that form's are not. An error: the bench is gone.
 */
arfuse_status composition_time(composition *c, race_row *row, const arf_effort *effort,
                               arf_error *error);

#endif
