/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, grids, blocks, and who goes on: every choice is drawn from the seed. */
#include "emulator/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/state.h"

/* Virtual time of one switch, and how far time jumps when nobody can go on: far below and well
 * below the wait limits that tests use. */
enum { SWITCH_NS = 10, IDLE_NS = 1000000 };
/* Beyond these there is no progress. */
enum { MOST_IDLE = 20000 };
static const uint64_t most_switches = 400 * 1000 * 1000;

emu_engine *emu_running;
const emu_place *emu_here;

static void *room(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);
    if (memory == NULL) {
        fprintf(stderr, "emulator: out of memory\n");
        exit(1);
    }
    return memory;
}
static void *zeroed(size_t bytes)
{
    return memset(room(NULL, bytes + 1), 0, bytes + 1);
}

/* ---- creation ------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood, 2014) */
uint64_t emu_random(emu_engine *engine, uint64_t limit)
{
    uint64_t z = engine->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((z ^ z >> 31) >> 16) % limit;
}

static unsigned one_of(emu_engine *engine, const unsigned *choice, unsigned choices)
{
    return choice[emu_random(engine, choices)];
}

emu_engine *emu_engine_create(uint64_t seed)
{
    static const unsigned yield_in[] = {0, 3, 12, 60}, keep[] = {0, 8, 14, 15};
    static const unsigned deliver_in[] = {1, 8, 64, 1024}, delay[] = {0, 4, 12, 16};
    static const unsigned resident[] = {1, 3, 8, 40, 10000};
    emu_engine *engine = zeroed(sizeof *engine);
    engine->random = seed * 0x100000001b3u + 1;
    engine->now = 1000000;
    engine->chaos = (emu_chaos){.yield_in = one_of(engine, yield_in, 4),
                                .keep = one_of(engine, keep, 4),
                                .deliver_in = one_of(engine, deliver_in, 4),
                                .delay = one_of(engine, delay, 4),
                                .slow_stream = (int)emu_random(engine, 12) - 4,
                                .slow_rank = (int)emu_random(engine, 12) - 4,
                                .salt = (unsigned)emu_random(engine, 1u << 31),
                                .slow_threads = emu_random(engine, 4) == 0,
                                .slow_blocks = emu_random(engine, 4) == 0,
                                .any_block = emu_random(engine, 2),
                                .resident = one_of(engine, resident, 5)};
    return engine;
}

emu_chaos *emu_engine_chaos(emu_engine *engine)
{
    return &engine->chaos;
}
const char *emu_engine_message(const emu_engine *engine)
{
    return engine->message;
}
uint64_t emu_engine_switches(const emu_engine *engine)
{
    return engine->switches;
}

void emu_enqueue(emu_engine *engine, int stream, const emu_launch *launch)
{
    emu_grid *grid = zeroed(sizeof *grid);
    grid->launch = *launch;
    grid->stream = stream;
    grid->blocks = launch->grid_x * launch->grid_y;
    const unsigned clusters = grid->blocks / launch->cluster;
    grid->order = zeroed(clusters * sizeof *grid->order);
    for (unsigned i = 0; i < clusters; i++) {
        const unsigned other =
            engine->chaos.any_block ? (unsigned)emu_random(engine, i + UINT64_C(1)) : i;
        grid->order[i] = grid->order[other];
        grid->order[other] = i;
    }
    grid->block = zeroed(grid->blocks * sizeof(emu_block *));
    grid->before = engine->last[stream];
    *(grid->before ? &grid->before->next : &engine->first[stream]) = grid;
    engine->last[stream] = grid;
}

/* ---- who can go on -------------------------------------------------------------------------- */

static void make_ready(emu_engine *engine, emu_thread *thread)
{
    emu_block *block = thread->block;
    thread->state = EMU_READY;
    block->ready[block->ready_count++] = (int)thread->place.thread.x;
    if (block->runnable_at >= 0)
        return;
    block->runnable_at = engine->runnable_count;
    engine->runnable[engine->runnable_count++] = block;
}

static void not_runnable(emu_engine *engine, emu_block *block)
{
    emu_block *last = engine->runnable[--engine->runnable_count];
    engine->runnable[block->runnable_at] = last;
    last->runnable_at = block->runnable_at;
    block->runnable_at = -1;
}

void emu_wake(emu_block *block, const void *waits_on)
{
    for (int i = 0; i < block->threads; i++)
        if (block->thread[i].state == EMU_BLOCKED && block->thread[i].waits_on == waits_on)
            make_ready(emu_running, &block->thread[i]);
}

static void wake_polling(emu_engine *engine)
{
    for (int i = 0; i < engine->polling_count; i++) {
        engine->polling[i]->idle_looks = 0;
        make_ready(engine, engine->polling[i]);
    }
    engine->polling_count = 0;
    engine->woken_version = engine->version;
}

/* One in four threads, or blocks, when the seed says so: others run far ahead of them. */
static bool is_one_in_four(const emu_engine *engine, const emu_thread *thread, unsigned part)
{
    const emu_coordinates *block = &thread->place.block;
    const unsigned hash =
        (part * 2654435761u + block->x * 40503u + block->y * 30011u + engine->chaos.salt) *
        2246822519u;
    return hash >> 30 == 0;
}

static bool is_slow(const emu_engine *engine, const emu_thread *thread)
{
    const emu_grid *grid = thread->block->grid;
    return grid->stream == engine->chaos.slow_stream ||
           (int)(thread->place.block.x % grid->launch.ranks) == engine->chaos.slow_rank ||
           (engine->chaos.slow_threads && is_one_in_four(engine, thread, thread->place.thread.x)) ||
           (engine->chaos.slow_blocks && is_one_in_four(engine, thread, 0));
}

static emu_thread *pick(emu_engine *engine)
{
    emu_block *block = engine->current;
    bool stay =
        block != NULL && block->ready_count > 0 && emu_random(engine, 16) < engine->chaos.keep;
    int at = 0;
    if (engine->runnable_count == 0)
        return NULL;
    for (int draw = 0; draw < 8; draw++) {
        if (!stay)
            block = engine->runnable[emu_random(engine, (uint64_t)engine->runnable_count)];
        at = (int)emu_random(engine, (uint64_t)block->ready_count);
        if (!is_slow(engine, &block->thread[block->ready[at]]) || emu_random(engine, 128) == 0)
            break;
        stay = stay && emu_random(engine, 2) == 0;
    }
    emu_thread *thread = &block->thread[block->ready[at]];
    block->ready[at] = block->ready[--block->ready_count];
    if (block->ready_count == 0)
        not_runnable(engine, block);
    return thread;
}

/* ---- blocks start and end -------------------------------------------------------------------- */

static void body(void *argument)
{
    emu_thread *thread = argument;
    const emu_launch *launch = &thread->block->grid->launch;
    launch->unit->kernel(launch->call, launch->team, launch->operands);
    emu_yield(EMU_ENDED, NULL, "has ended");
}

static emu_block *start_block(emu_engine *engine, emu_grid *grid, unsigned x, unsigned y)
{
    const emu_launch *launch = &grid->launch;
    const size_t threads = launch->threads;
    emu_block *block = zeroed(sizeof *block);
    block->grid = grid;
    block->threads = (int)threads;
    block->thread = zeroed(threads * sizeof *block->thread);
    block->ready = zeroed(threads * sizeof *block->ready);
    block->warp = zeroed((threads + EMU_WARP - 1) / EMU_WARP * sizeof *block->warp);
    block->shared = zeroed(emu_shared_image(launch));
    block->runnable_at = -1;
    if (engine->alive_count == engine->room) {
        engine->room = engine->room * 2 + 64;
        engine->alive = room(engine->alive, (size_t)engine->room * sizeof(emu_block *));
        engine->runnable = room(engine->runnable, (size_t)engine->room * sizeof(emu_block *));
    }
    block->alive_at = engine->alive_count;
    engine->alive[engine->alive_count++] = block;
    for (unsigned i = 0; i < threads; i++) {
        emu_thread *thread = &block->thread[i];
        thread->block = block;
        thread->place = (emu_place){
            {i, 0, 0}, {x, y, 0}, {launch->threads, 1, 1}, {launch->grid_x, launch->grid_y, 1}};
        thread->doing = "has not begun";
        thread->fiber = emu_fiber_start(body, thread);
        make_ready(engine, thread);
    }
    grid->block[grid->started_blocks++] = block;
    engine->resident[grid->stream]++;
    return block;
}

static void start_cluster(emu_engine *engine, emu_grid *grid)
{
    const unsigned size = grid->launch.cluster;
    const unsigned id = grid->order[grid->started_blocks / size];
    const unsigned x = id % grid->launch.grid_x, y = id / grid->launch.grid_x * size;
    emu_cluster *cluster = zeroed(sizeof *cluster);
    grid->started = true;
    cluster->blocks = cluster->alive = (int)size;
    for (unsigned i = 0; i < size; i++) {
        emu_block *block = start_block(engine, grid, x, y + i);
        block->cluster = cluster;
        block->part = (int)i;
        cluster->block[i] = block;
    }
}

static bool may_start(const emu_engine *engine, const emu_grid *grid)
{
    const emu_grid *before = grid->before;
    if (grid->started || before == NULL)
        return true;
    if (grid->launch.dependent)
        return before->started_blocks == before->blocks &&
               before->triggered_blocks == before->blocks;
    for (const emu_grid *g = engine->first[grid->stream]; g != grid; g = g->next)
        if (!g->done)
            return false;
    return true;
}

/* One cluster of the stream's first grid that has some left, if it may start and there is room. */
static bool start_one(emu_engine *engine, int stream)
{
    emu_grid *grid =
        engine->next_start[stream] ? engine->next_start[stream] : engine->first[stream];
    while (grid != NULL && grid->started_blocks == grid->blocks)
        grid = grid->next;
    engine->next_start[stream] = grid;
    if (grid == NULL || !may_start(engine, grid))
        return false;
    const unsigned resident = engine->resident[stream], size = grid->launch.cluster;
    if (resident > 0 && resident + size > engine->chaos.resident)
        return false;
    start_cluster(engine, grid);
    return true;
}

static bool start_any(emu_engine *engine)
{
    const int start = (int)emu_random(engine, EMU_STREAMS);
    for (int i = 0; i < EMU_STREAMS; i++)
        if (engine->first[(start + i) % EMU_STREAMS] &&
            start_one(engine, (start + i) % EMU_STREAMS))
            return true;
    return false;
}

static void forget_block(emu_block *block)
{
    if (++block->cluster->forgotten == block->cluster->blocks)
        free(block->cluster);
    free(block->thread);
    free(block->ready);
    free(block->warp);
    free(block->shared);
    free(block);
}

static void end_grid(emu_engine *engine, emu_grid *grid)
{
    for (unsigned i = 0; i < grid->blocks; i++) {
        emu_block *block = grid->block[i], *last = engine->alive[engine->alive_count - 1];
        emu_deliver_all(block);
        engine->alive[block->alive_at] = last;
        last->alive_at = block->alive_at;
        engine->alive_count--;
        if (engine->current == block)
            engine->current = NULL;
        forget_block(block);
    }
    grid->done = true;
    free(grid->block);
    free(grid->order);
    grid->block = NULL, grid->order = NULL;
    if (grid->next == NULL)
        return;
    for (int i = 0; i < engine->alive_count; i++)
        if (engine->alive[i]->grid == grid->next)
            emu_wake(engine->alive[i], grid);
}

static void end_thread(emu_engine *engine, emu_thread *thread)
{
    emu_block *block = thread->block;
    emu_grid *grid = block->grid;
    emu_fiber_drop(thread->fiber);
    thread->fiber = NULL;
    if (++block->ended < block->threads)
        return;
    if (block->copies > 0)
        snprintf(engine->message, sizeof engine->message,
                 "%.160s: a block ends while %d copies to its shared memory are under way",
                 grid->launch.unit->name, block->copies);
    if (!block->triggered)
        grid->triggered_blocks++;
    block->triggered = true;
    block->cluster->alive--;
    emu_shared_leave(block);
    engine->resident[grid->stream]--;
    if (++grid->ended_blocks == grid->blocks)
        end_grid(engine, grid);
}

/* ---- for the thread that runs -----------------------------------------------------------------
 */

void emu_yield(emu_thread_state state, const void *waits_on, const char *doing)
{
    emu_thread *thread = emu_running->running;
    thread->state = state;
    thread->waits_on = waits_on;
    thread->doing = doing;
    emu_fiber_pause(thread->fiber);
}

void emu_maybe_yield(const char *doing)
{
    const unsigned yield_in = emu_running->chaos.yield_in;
    if (yield_in > 0 && emu_random(emu_running, yield_in) == 0)
        emu_yield(EMU_READY, NULL, doing);
}

static void describe(const emu_thread *thread, char *text, size_t size)
{
    const emu_place *at = &thread->place;
    snprintf(text, size, "%.100s, stream %d, block %u,%u of %u,%u, thread %u",
             thread->block->grid->launch.unit->name, thread->block->grid->stream, at->block.x,
             at->block.y, at->grid_dim.x, at->grid_dim.y, at->thread.x);
}

void emu_complain(const char *format, ...)
{
    emu_engine *engine = emu_running;
    char where[256], what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    describe(engine->running, where, sizeof where);
    snprintf(engine->message, sizeof engine->message, "%s: %s", where, what);
    for (;;)
        emu_yield(EMU_READY, NULL, "has failed");
}

/* ---- the run ----------------------------------------------------------------------------------
 */

static void run_thread(emu_engine *engine, emu_thread *thread)
{
    emu_block *block = thread->block;
    engine->current = block;
    engine->running = thread;
    emu_shared_enter(block);
    block->has_run = true;
    emu_here = &thread->place;
    engine->switches++;
    engine->now += SWITCH_NS;
    emu_fiber_resume(thread->fiber);
    const char *wrong = emu_shared_check(block);
    if (wrong != NULL && engine->message[0] == 0)
        snprintf(engine->message, sizeof engine->message, "%.160s: block %u,%u %s",
                 block->grid->launch.unit->name, thread->place.block.x, thread->place.block.y,
                 wrong);
    if (engine->message[0] != 0)
        return;
    if (thread->state == EMU_ENDED) {
        end_thread(engine, thread);
    } else if (thread->state == EMU_READY) {
        make_ready(engine, thread);
    } else if (thread->state == EMU_POLLING) {
        if (engine->polling_count == engine->polling_room) {
            engine->polling_room = engine->polling_room * 2 + 256;
            engine->polling =
                room(engine->polling, (size_t)engine->polling_room * sizeof(emu_thread *));
        }
        engine->polling[engine->polling_count++] = thread;
    }
}

/* Some of the threads that cannot go on: the first of each block, and what it does. */
static void no_progress(emu_engine *engine, const char *what)
{
    size_t used = (size_t)snprintf(engine->message, sizeof engine->message, "%s:", what);
    for (int i = 0; i < engine->alive_count && used < sizeof engine->message - 1; i++)
        for (int t = 0; t < engine->alive[i]->threads; t++) {
            const emu_thread *thread = &engine->alive[i]->thread[t];
            char where[256];
            if (thread->state == EMU_ENDED)
                continue;
            describe(thread, where, sizeof where);
            used += (size_t)snprintf(engine->message + used, sizeof engine->message - used,
                                     " [%s %s]", where, thread->doing);
            if (used > sizeof engine->message - 1)
                used = sizeof engine->message - 1;
            break;
        }
}

static bool all_done(const emu_engine *engine)
{
    for (int i = 0; i < EMU_STREAMS; i++)
        if (engine->last[i] != NULL)
            for (const emu_grid *g = engine->first[i]; g != NULL; g = g->next)
                if (!g->done)
                    return false;
    return true;
}

/* Nothing can run. False: nothing ever will. */
static bool idle(emu_engine *engine)
{
    if (start_any(engine))
        return true;
    if (engine->polling_count > 0 && engine->version != engine->woken_version) {
        engine->idle = 0;
        wake_polling(engine);
        return true;
    }
    if (emu_deliver_any(engine))
        return true;
    if (engine->polling_count == 0 || engine->idle++ == MOST_IDLE)
        return false;
    engine->now += IDLE_NS;
    wake_polling(engine);
    return true;
}

static void forget(emu_engine *engine)
{
    for (int i = 0; i < engine->alive_count; i++)
        for (int t = 0; t < engine->alive[i]->threads; t++)
            if (engine->alive[i]->thread[t].fiber != NULL)
                emu_fiber_drop(engine->alive[i]->thread[t].fiber);
    for (int i = 0; i < engine->alive_count; i++) {
        emu_shared_leave(engine->alive[i]);
        forget_block(engine->alive[i]);
    }
    engine->alive_count = engine->runnable_count = engine->polling_count = 0;
    engine->current = NULL;
    for (int i = 0; i < EMU_STREAMS; i++) {
        for (emu_grid *grid = engine->first[i], *next; grid != NULL; grid = next) {
            next = grid->next;
            free(grid->block);
            free(grid->order);
            free(grid);
        }
        engine->first[i] = engine->last[i] = engine->next_start[i] = NULL;
        engine->resident[i] = 0;
    }
}

bool emu_run(emu_engine *engine)
{
    emu_running = engine;
    while (engine->message[0] == 0) {
        if (emu_random(engine, 4) == 0)
            start_any(engine);
        if (emu_random(engine, engine->chaos.deliver_in) == 0)
            emu_deliver_any(engine);
        if (engine->switches % 512 == 511 && engine->version != engine->woken_version)
            wake_polling(engine);
        emu_thread *thread = pick(engine);
        if (thread != NULL)
            run_thread(engine, thread);
        else if (all_done(engine))
            break;
        else if (!idle(engine))
            no_progress(engine, "nobody can go on");
        if (engine->switches > most_switches)
            no_progress(engine, "no end");
    }
    forget(engine);
    emu_running = NULL;
    return engine->message[0] == 0;
}

void emu_engine_destroy(emu_engine *engine)
{
    forget(engine);
    free(engine->alive);
    free(engine->runnable);
    free(engine->polling);
    free(engine);
}
