/* SPDX-License-Identifier: Apache-2.0 */
/* Phases (mbarriers) in shared memory, and the bulk copies that arrive at them. */
#include <string.h>

#include "emulator/state.h"

/* What stands in the word of a phase. */
typedef union phase_word {
    unsigned long long word;
    struct {
        unsigned arrivals : 10, missing : 10, parity : 1, made : 11;
        int bytes; /* expected, less those that have come */
    } is;
} phase_word;
enum { MADE = 0x5a5 };

static phase_word read_phase(const unsigned long long *phase)
{
    const phase_word now = {.word = *phase};
    if (now.is.made != MADE)
        emu_complain("the phase at %p was never made", (const void *)phase);
    return now;
}

/* Over when all have arrived and all bytes are there; the next one begins. */
static void settle(emu_block *block, unsigned long long *there, const void *phase, phase_word now)
{
    const bool over = now.is.missing == 0 && now.is.bytes == 0;
    if (over) {
        now.is.missing = now.is.arrivals;
        now.is.parity ^= 1;
    }
    *there = now.word;
    if (over)
        emu_wake(block, phase);
}

void emu_phase_init(unsigned long long *phase, int arrivals)
{
    phase_word now = {.word = 0};
    now.is.arrivals = now.is.missing = (unsigned)arrivals & 1023;
    now.is.made = MADE;
    *phase = now.word;
}

void emu_phase_arrive(unsigned long long *phase, unsigned expected_bytes)
{
    emu_maybe_yield("arrives at a phase");
    phase_word now = read_phase(phase);
    if (now.is.missing == 0)
        emu_complain("arrives at a phase where nobody is missing");
    emu_know(&emu_note(phase)->known, &emu_running->running->known);
    now.is.missing--;
    now.is.bytes += (int)expected_bytes;
    settle(emu_running->current, phase, phase, now);
}

void emu_phase_wait(unsigned long long *phase, unsigned parity)
{
    emu_maybe_yield("comes to a phase");
    while (read_phase(phase).is.parity == parity)
        emu_yield(EMU_BLOCKED, phase, "waits for a phase");
    emu_know(&emu_running->running->known, &emu_note(phase)->known);
}

void emu_bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *phase)
{
    emu_block *block = emu_running->current;
    if (bytes % 16 != 0 || (uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0)
        emu_complain("a bulk copy of %u bytes from %p to %p: not multiples of 16", bytes, from, to);
    if (emu_shared_of(block, to) != to || emu_shared_of(block, (char *)to + bytes - 1) == NULL)
        emu_complain("a bulk copy to %p, which is not in shared memory", to);
    while (block->copies == EMU_COPIES)
        emu_copy_complete(block, (int)emu_random(emu_running, EMU_COPIES));
    memset(to, 0xff, bytes); /* it may write from now on */
    block->copy[block->copies++] = (emu_copy){to, from, bytes, phase};
    emu_maybe_yield("has asked for a copy");
}

void emu_copy_complete(emu_block *block, int index)
{
    const emu_copy copy = block->copy[index];
    unsigned long long *there = (void *)emu_shared_of(block, copy.phase);
    block->copy[index] = block->copy[--block->copies];
    memcpy(emu_shared_of(block, copy.to), copy.from, copy.bytes);
    phase_word now = {.word = *there};
    now.is.bytes -= (int)copy.bytes;
    settle(block, there, copy.phase, now);
}
