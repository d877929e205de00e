/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arfuse-tune without a launcher: the same program, in processes that this one forks. For machines
 * with GPUs and no MPI.
 *
 *     forked_tune N [options of arfuse-tune]
 *
 * Exit: the largest of the processes'.
 */
#include <stdio.h>

#include "bench/gpu/forked.h"
#include "tune/options.h"

/* A run has a budget of its own; this is for one that does not come to it. */
#define SECONDS 3600.0

int arf_tune_main(int argc, char **argv); /* main of src/tune/main.c */

typedef struct call {
    int argc;
    char **argv;
} call;

static int tune(void *context)
{
    const call *own = context;
    return arf_tune_main(own->argc, own->argv);
}

int main(int argc, char **argv)
{
    int64_t processes = 0;
    call own = {argc - 1, argv + 1};
    if (argc < 2 || !arf_number_parse(argv[1], 1, 16, &processes))
        return fprintf(stderr, "usage: forked_tune 1..16 [options of arfuse-tune]\n"), 2;
    return forked_run((int)processes, SECONDS, tune, &own);
}
