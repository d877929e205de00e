/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Global memory. A store may be under way for a while: its thread sees it at
 * once, and so do others of the block that a barrier put behind it; everybody
 * else when it is delivered. Stores of a block are delivered in any order, the
 * bf16 values of one arf_send apart. A release delivers what its thread has done
 * or knows of; the end of the grid delivers all.
 */
#include <string.h>

#include "emulator/state.h"

/* ---- who knows what ------------------------------------------------------------------------- */

void emu_know(emu_known *to, const emu_known *also)
{
    for (int i = 0; i < EMU_PENDING / 64; i++)
        to->bit[i] |= also->bit[i];
}
static bool knows(const emu_known *known, int index)
{
    return known->bit[index / 64] >> index % 64 & 1;
}
static void forget(emu_known *known, int index)
{
    known->bit[index / 64] &= ~(UINT64_C(1) << index % 64);
}

emu_noted *emu_note(const void *at)
{
    emu_block *block = emu_running->current;
    for (int i = 0; i < block->notes; i++)
        if (block->noted[i].at == at)
            return &block->noted[i];
    if (block->notes == EMU_NOTED)
        emu_complain("more than %d words order its threads", EMU_NOTED);
    block->noted[block->notes].at = at;
    return &block->noted[block->notes++];
}

/* ---- delivery ------------------------------------------------------------------------------- */

static void write_now(emu_engine *engine, const emu_pending *store)
{
    memcpy(store->at, store->value, store->bytes);
    engine->version++;
}

static void deliver(emu_block *block, int index)
{
    write_now(emu_running, &block->pending[index]);
    block->pending[index].bytes = 0;
    block->pending_count--;
    while (block->pending_top > 0 && block->pending[block->pending_top - 1].bytes == 0)
        block->pending_top--;
    for (int i = 0; i < block->threads; i++)
        forget(&block->thread[i].known, index);
    for (int i = 0; i < (block->threads + EMU_WARP - 1) / EMU_WARP; i++) {
        forget(&block->warp[i].exchange.known, index);
        forget(&block->warp[i].exchange.passed, index);
    }
    for (int i = 0; i < EMU_BARRIERS; i++) {
        forget(&block->barrier[i].known, index);
        forget(&block->barrier[i].passed, index);
    }
    for (int i = 0; i < block->notes; i++)
        forget(&block->noted[i].known, index);
}

/* A random one of those that are under way. */
static void deliver_one(emu_block *block)
{
    int index = (int)emu_random(emu_running, (uint64_t)block->pending_top);
    while (block->pending[index].bytes == 0)
        index = (index + 1) % block->pending_top;
    deliver(block, index);
}

void emu_deliver_all(emu_block *block)
{
    while (block->pending_count > 0)
        deliver_one(block);
}

void emu_deliver_known(emu_thread *thread)
{
    emu_block *block = thread->block;
    for (int i = 0; i < block->pending_top; i++)
        if (block->pending[i].bytes > 0 && knows(&thread->known, i))
            deliver(block, i);
}

bool emu_deliver_any(emu_engine *engine)
{
    if (engine->alive_count == 0)
        return false;
    const int start = (int)emu_random(engine, (uint64_t)engine->alive_count);
    for (int i = 0; i < engine->alive_count; i++) {
        emu_block *block = engine->alive[(start + i) % engine->alive_count];
        if (block->copies > 0 && (block->pending_count == 0 || emu_random(engine, 2) == 0))
            emu_copy_complete(block, (int)emu_random(engine, (uint64_t)block->copies));
        else if (block->pending_count > 0)
            deliver_one(block);
        else
            continue;
        return true;
    }
    return false;
}

/* To one address stores stay in order. */
static void deliver_overlapping(emu_block *block, const char *at, unsigned bytes)
{
    for (int i = 0; i < block->pending_top; i++) {
        const emu_pending *store = &block->pending[i];
        if (store->bytes > 0 && store->at < at + bytes && at < store->at + store->bytes)
            deliver(block, i);
    }
}

static void put(char *at, const void *value, unsigned bytes)
{
    emu_engine *engine = emu_running;
    emu_block *block = engine->current;
    emu_pending store = {.at = at, .bytes = bytes};
    memcpy(store.value, value, bytes);
    deliver_overlapping(block, at, bytes);
    if (emu_random(engine, 16) >= engine->chaos.delay) {
        write_now(engine, &store);
        return;
    }
    if (block->pending_count == EMU_PENDING)
        deliver_one(block);
    int index = 0;
    while (block->pending[index].bytes > 0)
        index++;
    block->pending[index] = store;
    block->pending_count++;
    if (index >= block->pending_top)
        block->pending_top = index + 1;
    engine->running->known.bit[index / 64] |= UINT64_C(1) << index % 64;
}

/* What stands there, with what this thread has stored or knows of. */
static void get(const char *at, void *value, unsigned bytes)
{
    const emu_block *block = emu_running->current;
    memcpy(value, at, bytes);
    for (int i = 0; i < block->pending_top; i++) {
        const emu_pending *store = &block->pending[i];
        if (store->bytes == 0 || store->at >= at + bytes || at >= store->at + store->bytes ||
            !knows(&emu_running->running->known, i))
            continue;
        for (unsigned b = 0; b < store->bytes; b++)
            if (store->at + b >= at && store->at + b < at + bytes)
                ((unsigned char *)value)[store->at + b - at] = store->value[b];
    }
}

/* ---- what threads do ------------------------------------------------------------------------- */

void emu_load(const void *at, void *value, unsigned bytes)
{
    emu_maybe_yield("loads");
    if ((uintptr_t)at % bytes != 0)
        emu_complain("a load of %u bytes at %p is not aligned", bytes, at);
    get(at, value, bytes);
}

void emu_store(void *at, const void *value, unsigned bytes)
{
    emu_maybe_yield("stores");
    if ((uintptr_t)at % bytes != 0)
        emu_complain("a store of %u bytes at %p is not aligned", bytes, at);
    put(at, value, bytes);
}

void emu_send(void *at, const void *value, unsigned bytes)
{
    emu_maybe_yield("sends");
    if ((uintptr_t)at % bytes != 0)
        emu_complain("a store of %u bytes at %p is not aligned", bytes, at);
    if (emu_random(emu_running, 4) != 0) {
        put(at, value, bytes);
        return;
    }
    unsigned start = (unsigned)emu_random(emu_running, bytes / 2); /* apart */
    for (unsigned i = 0; i < bytes / 2; i++, start = (start + 1) % (bytes / 2)) {
        put((char *)at + 2 * start, (const char *)value + 2 * start, 2);
        emu_maybe_yield("sends");
    }
}

/* Looks that found nothing new in all of memory, after which a thread waits until there is. */
enum { IDLE_LOOKS = 12 };

void emu_poll(const void *at)
{
    emu_thread *thread = emu_running->running;
    if (thread->seen != emu_running->version)
        thread->idle_looks = 0;
    if (thread->idle_looks >= IDLE_LOOKS)
        emu_yield(EMU_POLLING, at, "polls");
    else
        emu_maybe_yield("looks");
    thread->idle_looks++;
    thread->seen = emu_running->version;
}

void emu_look(const void *at, void *value, unsigned bytes)
{
    if ((uintptr_t)at % bytes != 0)
        emu_complain("a load of %u bytes at %p is not aligned", bytes, at);
    emu_poll(at);
    get(at, value, bytes);
}

unsigned long long emu_look_acquire(const unsigned long long *at)
{
    unsigned long long value;
    emu_look(at, &value, sizeof value);
    return value;
}

void emu_send_release(unsigned long long *at, unsigned long long value)
{
    emu_maybe_yield("releases");
    emu_deliver_known(emu_running->running);
    emu_store(at, &value, sizeof value);
}

unsigned long long emu_swap_if(unsigned long long *at, unsigned long long expected,
                               unsigned long long wanted)
{
    emu_maybe_yield("swaps");
    deliver_overlapping(emu_running->current, (const char *)at, sizeof *at);
    const unsigned long long old = *at;
    if (old == expected) {
        *at = wanted;
        emu_running->version++;
    }
    return old;
}

unsigned emu_count(unsigned *at, int ordered)
{
    emu_maybe_yield("counts");
    if (ordered)
        emu_deliver_known(emu_running->running);
    deliver_overlapping(emu_running->current, (const char *)at, sizeof *at);
    emu_running->version++;
    return (*at)++;
}
