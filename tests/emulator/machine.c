/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes, barriers, clusters, grids and time, for the thread that runs. */
#include <string.h>

#include "emulator/state.h"

static emu_thread *self(void)
{
    return emu_running->running;
}

/* ---- barriers -------------------------------------------------------------------------------- */

/* All `threads` of them arrive; each then knows what all knew, if it orders memory. */
static void meet(emu_barrier *barrier, int threads, bool orders, const char *doing)
{
    emu_thread *thread = self();
    if (orders)
        emu_know(&barrier->known, &thread->known);
    if (++barrier->arrived == threads) {
        barrier->arrived = 0;
        barrier->phase++;
        barrier->result = barrier->any;
        barrier->any = 0;
        barrier->passed = barrier->known;
        barrier->known = (emu_known){{0}};
        emu_wake(thread->block, barrier);
    } else {
        emu_yield(EMU_BLOCKED, barrier, doing);
    }
    emu_know(&thread->known, &barrier->passed);
}

int emu_group_any(int id, int threads, int condition)
{
    emu_block *block = self()->block;
    if (id < 0 || id >= EMU_BARRIERS || threads > block->threads || threads % EMU_WARP != 0)
        emu_complain("barrier %d for %d threads", id, threads);
    block->barrier[id].any |= condition != 0;
    meet(&block->barrier[id], threads, true, "waits at a barrier of its block");
    return block->barrier[id].result;
}
void emu_group_barrier(int id, int threads)
{
    emu_group_any(id, threads, 0);
}
int emu_block_any(int condition)
{
    emu_block *block = self()->block;
    if (block->ended > 0)
        emu_complain("a barrier of the block: %d of its threads have ended", block->ended);
    return emu_group_any(0, block->threads, condition);
}
void emu_block_barrier(void)
{
    emu_block_any(0);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static emu_warp *meet_warp(unsigned value, bool orders, unsigned *parity)
{
    emu_thread *thread = self();
    emu_block *block = thread->block;
    const int index = (int)thread->place.thread.x, lane = index % EMU_WARP;
    emu_warp *warp = &block->warp[index / EMU_WARP];
    for (int i = index - lane; i < index - lane + EMU_WARP; i++)
        if (i >= block->threads || block->thread[i].state == EMU_ENDED)
            emu_complain("meets lane %d, which has ended or never was", i % EMU_WARP);
    *parity = warp->exchange.phase & 1;
    warp->value[*parity][lane] = value;
    meet(&warp->exchange, EMU_WARP, orders, "meets its warp");
    return warp;
}
const unsigned *emu_lanes(unsigned value)
{
    unsigned parity;
    const emu_warp *warp = meet_warp(value, false, &parity);
    return warp->value[parity];
}
void emu_warp_barrier(void)
{
    unsigned parity;
    meet_warp(0, true, &parity);
}

/* ---- words and phases in shared memory --------------------------------------------------------
 */

void emu_tell(unsigned *at, unsigned value)
{
    emu_maybe_yield("tells");
    emu_know(&emu_note(at)->known, &self()->known);
    *at = value;
    emu_running->version++;
}
unsigned emu_heard(const unsigned *at)
{
    emu_poll(at);
    emu_know(&self()->known, &emu_note(at)->known);
    return *at;
}

/* ---- the cluster ---------------------------------------------------------------------------- */

void emu_cluster_arrive(void)
{
    emu_thread *thread = self();
    emu_cluster *cluster = thread->block->cluster;
    if (thread->cluster_phase != cluster->phase)
        emu_complain("arrives twice at the barrier of its cluster");
    emu_deliver_known(thread); /* stronger than the promise: for all, not for the cluster */
    thread->cluster_phase++;
    if (++cluster->arrived < cluster->blocks * thread->block->threads)
        return;
    cluster->arrived = 0;
    cluster->phase++;
    for (int i = 0; i < cluster->blocks; i++)
        emu_wake(cluster->block[i], cluster);
}

void emu_cluster_wait(void)
{
    emu_thread *thread = self();
    emu_cluster *cluster = thread->block->cluster;
    if (thread->cluster_phase != cluster->phase)
        emu_yield(EMU_BLOCKED, cluster, "waits for its cluster");
}

void emu_cluster_store(float *at, int block, float value)
{
    emu_thread *thread = self();
    emu_cluster *cluster = thread->block->cluster;
    emu_maybe_yield("stores into its cluster");
    if (block < 0 || block >= cluster->blocks)
        emu_complain("block %d of a cluster of %d", block, cluster->blocks);
    emu_block *to = cluster->block[block];
    if (to->ended == to->threads)
        emu_complain("stores into block %d of its cluster, which has ended", block);
    if (!to->has_run)
        emu_complain("stores into block %d of its cluster, which may not run yet", block);
    char *there = emu_shared_of(to, at);
    if (there == NULL)
        emu_complain("%p is not in shared memory", (void *)at);
    memcpy(there, &value, sizeof value);
}

/* ---- the grid ------------------------------------------------------------------------------- */

void emu_grid_wait(void)
{
    const emu_grid *grid = self()->block->grid;
    emu_maybe_yield("comes to wait for the grid before");
    if (grid->launch.dependent && grid->before != NULL && !grid->before->done)
        emu_yield(EMU_BLOCKED, grid->before, "waits for the grid before");
}

/* One thread speaks for its block. */
void emu_grid_trigger(void)
{
    emu_block *block = self()->block;
    if (block->triggered)
        return;
    block->triggered = true;
    block->grid->triggered_blocks++;
    emu_maybe_yield("has triggered");
}

/* ---- time ----------------------------------------------------------------------------------- */

unsigned long long emu_now(void)
{
    return emu_running->now;
}
void emu_rest(unsigned nanoseconds)
{
    (void)nanoseconds; /* others rest at the same time: the clock is that of switches */
    emu_yield(EMU_READY, NULL, "rests");
}
