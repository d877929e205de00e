/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Global memory. A store may be under way for a while: its block sees it at
 * once, others when it is delivered. Each block's stores under way are delivered
 * in any order, the bf16 values of one arf_send apart; all of them before the
 * block's next release, and before its grid has ended. That a release delivers
 * those of the whole block, not only what its thread has done or seen, is
 * stronger than the promise.
 */
#include <string.h>

#include "emulator/state.h"

static void write_now(emu_engine *engine, const emu_pending *store)
{
    memcpy(store->at, store->value, store->bytes);
    engine->version++;
}

static void deliver(emu_engine *engine, emu_block *block, int index)
{
    write_now(engine, &block->pending[index]);
    block->pending[index] = block->pending[--block->pending_count];
}

void emu_deliver_all(emu_block *block)
{
    while (block->pending_count > 0)
        deliver(emu_running, block, (int)emu_random(emu_running, (uint64_t)block->pending_count));
}

bool emu_deliver_any(emu_engine *engine)
{
    if (engine->alive_count == 0)
        return false;
    const int start = (int)emu_random(engine, (uint64_t)engine->alive_count);
    for (int i = 0; i < engine->alive_count; i++) {
        emu_block *block = engine->alive[(start + i) % engine->alive_count];
        if (block->pending_count == 0)
            continue;
        deliver(engine, block, (int)emu_random(engine, (uint64_t)block->pending_count));
        return true;
    }
    return false;
}

/* To one address stores stay in order, and what is read there is the newest. */
static void deliver_overlapping(emu_block *block, const char *at, unsigned bytes)
{
    for (int i = 0; i < block->pending_count;)
        if (block->pending[i].at < at + bytes &&
            at < block->pending[i].at + block->pending[i].bytes)
            deliver(emu_running, block, i);
        else
            i++;
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
        deliver(engine, block, (int)emu_random(engine, EMU_PENDING));
    block->pending[block->pending_count++] = store;
}

/* What this block stored and what is read together: the newest of each byte. */
static void get(const char *at, void *value, unsigned bytes)
{
    const emu_block *block = emu_running->current;
    memcpy(value, at, bytes);
    for (int i = 0; i < block->pending_count; i++) {
        const emu_pending *store = &block->pending[i];
        if (store->at >= at + bytes || at >= store->at + store->bytes)
            continue;
        for (unsigned b = 0; b < store->bytes; b++)
            if (store->at + b >= at && store->at + b < at + bytes)
                ((unsigned char *)value)[store->at + b - at] = store->value[b];
    }
}

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

static void look(const void *at, void *value, unsigned bytes)
{
    emu_thread *thread = emu_running->running;
    if ((uintptr_t)at % bytes != 0)
        emu_complain("a load of %u bytes at %p is not aligned", bytes, at);
    if (thread->seen != emu_running->version)
        thread->idle_looks = 0;
    if (thread->idle_looks >= IDLE_LOOKS)
        emu_yield(EMU_POLLING, at, "polls");
    else
        emu_maybe_yield("looks");
    thread->idle_looks++;
    thread->seen = emu_running->version;
    get(at, value, bytes);
}

void emu_look(const void *at, void *value, unsigned bytes)
{
    look(at, value, bytes);
}

unsigned long long emu_look_acquire(const unsigned long long *at)
{
    unsigned long long value;
    look(at, &value, sizeof value);
    return value;
}

void emu_send_release(unsigned long long *at, unsigned long long value)
{
    emu_deliver_all(emu_running->current);
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
        emu_deliver_all(emu_running->current);
    deliver_overlapping(emu_running->current, (const char *)at, sizeof *at);
    emu_running->version++;
    return (*at)++;
}
