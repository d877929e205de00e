/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated machine as a test sees it: units (compiled kernels), streams and
 * launches, and one run of everything enqueued. Seeded: the same seed, launches
 * and units give the same interleaving.
 *
 * A stream stands for one process with its GPU. Its grids start in order; one
 * that was launched as dependent starts when all blocks of the grid before it
 * have triggered or ended, any other when all before it have ended.
 */
#ifndef TESTS_EMULATOR_ENGINE_H
#define TESTS_EMULATOR_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*emu_kernel)(const void *call, const void *team, const void *operands);

/* A kernel, compiled with its macros into a shared object (unit.cpp). */
typedef struct emu_unit {
    char name[160];
    emu_kernel kernel;
    /* Its __shared__ variables, one copy in the OS thread's local storage, so that they are swapped
     * when another block runs: `shared_bytes` from `shared`, without the dynamic part at
     * `dynamic`. */
    char *shared, *dynamic;
    size_t shared_bytes;
    void *library;
    struct emu_block *live; /* whose shared memory stands there */
} emu_unit;

/* NULL with the reason in `why`. */
emu_unit *emu_unit_open(const char *path, const char *name, char *why, size_t room);
/* A kernel written in C, without shared memory. */
emu_unit *emu_unit_native(emu_kernel kernel, const char *name);
void emu_unit_close(emu_unit *unit);

typedef struct emu_launch {
    emu_unit *unit;
    unsigned grid_x, grid_y, threads, cluster, dynamic_bytes;
    bool dependent;
    unsigned ranks; /* local rank is block x modulo this; for choosing who is slow */
    const void *call, *team, *operands; /* stand until the run has ended */
} emu_launch;

enum { EMU_STREAMS = 16 };

/* What the seed decides; all may be overwritten before the first run. */
typedef struct emu_chaos {
    unsigned yield_in;   /* a switch at one in so many accesses to global memory; 0: at none */
    unsigned keep;       /* of 16: how readily the block that runs goes on */
    unsigned deliver_in; /* one in so many scheduling steps delivers a store that is under way */
    unsigned delay;      /* of 16: stores that are under way at all; 0: all arrive at once */
    int slow_stream, slow_rank; /* get a turn far less often; -1: none */
    unsigned salt;
    bool slow_threads, slow_blocks; /* one in four, also; by the salt which */
    bool any_block;                 /* blocks of a grid start in any order, else by index */
    unsigned resident;              /* blocks on one GPU at a time; a whole cluster always fits */
} emu_chaos;

typedef struct emu_engine emu_engine;
emu_engine *emu_engine_create(uint64_t seed);
void emu_engine_destroy(emu_engine *engine);
emu_chaos *emu_engine_chaos(emu_engine *engine);
uint64_t emu_random(emu_engine *engine, uint64_t limit); /* 0 to limit - 1 */

void emu_enqueue(emu_engine *engine, int stream, const emu_launch *launch);
/* Runs until every stream is empty. False: what is wrong stands in emu_engine_message. */
bool emu_run(emu_engine *engine);
const char *emu_engine_message(const emu_engine *engine);
/* Switches so far; virtual nanoseconds. */
uint64_t emu_engine_switches(const emu_engine *engine);

#endif
