/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark says on stdout; rank 0 alone calls. */
#ifndef TESTS_BENCH_GPU_PRINT_H
#define TESTS_BENCH_GPU_PRINT_H

#include <stdio.h>

#include "bench/gpu/marks.h"

/* For people: a line a ladder point, all of both patterns. */
void print_table(const run_of_marks *run, const arf_tuner *tuner);
/* For programs: a line for each plan that was timed, at every point; the variables first. */
void print_csv(const run_of_marks *run);
/* A line a mark. In CSV runs these go to stderr. */
void print_marks(const marks *all, FILE *to);

#endif
