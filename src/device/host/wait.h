/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every wait on a peer: spin a little, then yield the core, and give up at the
 * limit. Who gives up first writes the culprit into the sticky word of every
 * rank; everybody who waits reads its own word now and then, so all end together
 * and name the same culprit.
 */
#ifndef ARF_DEVICE_HOST_WAIT_H
#define ARF_DEVICE_HOST_WAIT_H

#include "device/host/host.h"
#include "device/host/turn.h"

/* What is waited for; arfuse_culprit.stage of the host device. */
typedef enum arf_host_stage {
    ARF_HOST_BARRIER = 1,
    ARF_HOST_LL_CONTRIBUTION,
    ARF_HOST_BT_CONTRIBUTION,
    ARF_HOST_BT_ROW,
    ARF_HOST_HT_CONTRIBUTION,
    ARF_HOST_HT_ROW,
    ARF_HOST_UNFUSED_CONTRIBUTION,
    ARF_HOST_UNFUSED_ROW,
    ARF_HOST_LAUNCH /* no wait: the culprit gave a call up half way */
} arf_host_stage;
const char *arf_host_stage_name(int stage);

typedef struct arf_host_wait {
    arf_host_rank *self;
    int yield_after;
    int peer; /* who is waited for */
    arf_host_stage stage;
    int64_t token;
    uint64_t epoch;
} arf_host_wait;

/* Four sentinels: a half of a pack that has not arrived. */
#define ARF_HOST_EMPTY UINT64_C(0x8000800080008000)

/* Until the word is not EMPTY; relaxed. False: given up. */
bool arf_host_await_data(const arf_host_wait *wait, arf_word *word, uint64_t *value);
/* Until the word is at least `count`; acquires what its writer released. False: given up. */
bool arf_host_await_count(const arf_host_wait *wait, arf_word *word, uint64_t count);

/* All ranks of the team, through the regions. False: given up. */
bool arf_host_barrier(arf_host_rank *self);

/* Fails the space on every rank, with this rank as culprit; who was first stays the culprit. */
void arf_host_give_up(arf_host_rank *self, int64_t tokens);

/* The culprit in a rank's sticky word; false when the space is intact. */
bool arf_host_failed(const arf_host_control *control, arfuse_culprit *culprit);

/* ---- mailboxes whose payload is its own flag ------------------------------------------------- */

/*
 * A pack is two 64-bit halves, each stored and loaded as one relaxed atomic. A half holds four
 * values and none of them may be a sentinel, so a half is seen either whole or EMPTY: each half
 * proves its own arrival, and no order between halves or packs is needed to read the values.
 * What does need order is re-use of a slot; the two fences below carry it (README.md).
 */
void arf_host_put(arf_word *slot, const arf_bf16 *values, int count);
/* Waits for each half, copies it out, and re-arms the slot. */
bool arf_host_take(const arf_host_wait *wait, arf_word *slot, arf_bf16 *values, int count);

/* Before the first put of a call, and of an owner's row: whoever takes it, and then fences, sees
 * every slot re-armed that this rank re-armed before. */
static inline void arf_host_fence_put(void)
{
#ifndef __SANITIZE_THREAD__ /* which does not model fences; it sees no plain access here either */
    atomic_thread_fence(memory_order_release);
#endif
}
/* After the last take. */
static inline void arf_host_fence_take(void)
{
#ifndef __SANITIZE_THREAD__
    atomic_thread_fence(memory_order_acquire);
#endif
}

#endif
