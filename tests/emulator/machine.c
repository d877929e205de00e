/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes, barriers, clusters, grids and time, for the thread that runs. */
#include <string.h>

#include "emulator/state.h"

static emu_thread *self(void)
{
    return emu_running->running;
}

/* ---- lanes ---------------------------------------------------------------------------------- */

float emu_lane_xor(float value, int mask)
{
    emu_thread *thread = self();
    emu_block *block = thread->block;
    const int index = (int)thread->place.thread.x, lane = index % EMU_WARP;
    emu_warp *warp = &block->warp[index / EMU_WARP];
    const unsigned parity = warp->phase & 1;
    for (int i = index - lane; i < index - lane + EMU_WARP; i++)
        if (i >= block->threads || block->thread[i].state == EMU_ENDED)
            emu_complain("exchanges with lane %d, which has ended or never was", i % EMU_WARP);
    warp->value[parity][lane] = value;
    if (++warp->arrived == EMU_WARP) {
        warp->arrived = 0;
        warp->phase++;
        emu_wake(block, warp);
    } else {
        emu_yield(EMU_BLOCKED, warp, "exchanges with its warp");
    }
    return warp->value[parity][lane ^ mask];
}

/* ---- the block ------------------------------------------------------------------------------ */

static emu_barrier *arrive(int id, int threads)
{
    emu_barrier *barrier = &self()->block->barrier[id];
    if (id < 0 || id >= EMU_BARRIERS || threads > self()->block->threads)
        emu_complain("barrier %d for %d threads", id, threads);
    if (++barrier->arrived < threads)
        return NULL;
    barrier->arrived = 0;
    barrier->phase++;
    barrier->result = barrier->any;
    barrier->any = 0;
    emu_wake(self()->block, barrier);
    return barrier;
}

static void sync(int id, int threads)
{
    if (arrive(id, threads) == NULL)
        emu_yield(EMU_BLOCKED, &self()->block->barrier[id], "waits at a barrier of its block");
}

int emu_block_any(int condition)
{
    emu_block *block = self()->block;
    if (block->ended > 0)
        emu_complain("a barrier of the block: %d of its threads have ended", block->ended);
    block->barrier[0].any |= condition != 0;
    sync(0, block->threads);
    return block->barrier[0].result;
}
void emu_block_barrier(void)
{
    emu_block_any(0);
}
void emu_named_sync(int barrier, int threads)
{
    sync(barrier, threads);
}
void emu_named_arrive(int barrier, int threads)
{
    arrive(barrier, threads);
}

/* ---- the cluster ---------------------------------------------------------------------------- */

void emu_cluster_arrive(void)
{
    emu_thread *thread = self();
    emu_cluster *cluster = thread->block->cluster;
    if (thread->cluster_phase != cluster->phase)
        emu_complain("arrives twice at the barrier of its cluster");
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
    emu_running->now += nanoseconds;
    emu_yield(EMU_READY, NULL, "rests");
}
