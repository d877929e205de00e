/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel sees of the emulated machine: where a thread stands, and the
 * operations behind the names of kernels/primitives.cuh. C and C++.
 *
 * All threads of all blocks are fibers of one OS thread, so a plain access is
 * never torn and a run is a function of its seed. What is weaker than that on
 * purpose: stores to global memory are under way for a while (see memory.h).
 */
#ifndef TESTS_EMULATOR_MACHINE_H
#define TESTS_EMULATOR_MACHINE_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* units find these in the program */

/* The most dynamic shared memory of a block. */
#define EMU_MOST_DYNAMIC (232 * 1024)

typedef struct emu_coordinates {
    unsigned x, y, z;
} emu_coordinates;

/* Of the thread that runs; changes at every switch. */
typedef struct emu_place {
    emu_coordinates thread, block, block_dim, grid_dim;
} emu_place;
extern const emu_place *emu_here;

/* Global memory; `bytes` is 2, 4, 8 or 16. */
void emu_load(const void *at, void *value, unsigned bytes);
void emu_look(const void *at, void *value, unsigned bytes); /* a poll: lets others go on */
void emu_store(void *at, const void *value, unsigned bytes);
void emu_send(void *at, const void *value, unsigned bytes); /* its bf16 values may arrive apart */
unsigned long long emu_look_acquire(const unsigned long long *at);
void emu_send_release(unsigned long long *at, unsigned long long value);
unsigned long long emu_swap_if(unsigned long long *at, unsigned long long expected,
                               unsigned long long wanted);
unsigned emu_count(unsigned *at, int ordered);

/* Values of all 32 lanes, by lane; they stand until this lane's next exchange but one. No order. */
const unsigned *emu_lanes(unsigned value);
void emu_warp_barrier(void);
void emu_block_barrier(void);
int emu_block_any(int condition);
/* Named barriers 1 to 15 of a block, for `threads` of it. */
void emu_group_barrier(int barrier, int threads);
int emu_group_any(int barrier, int threads, int condition);

/* Words in shared memory, release and acquire at block scope. Hearing is a poll. */
void emu_tell(unsigned *at, unsigned value);
unsigned emu_heard(const unsigned *at);

/* Phases: mbarriers in shared memory, and copies that arrive at them. */
void emu_phase_init(unsigned long long *phase, int arrivals);
void emu_phase_arrive(unsigned long long *phase, unsigned expected_bytes);
void emu_phase_wait(unsigned long long *phase, unsigned parity);
void emu_bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *phase);

void emu_cluster_arrive(void);
void emu_cluster_wait(void);
void emu_cluster_store(float *at, int block, float value);

void emu_grid_wait(void);
void emu_grid_trigger(void);

unsigned long long emu_now(void);
void emu_rest(unsigned nanoseconds);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
