/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/wait.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* ---- the sticky word ------------------------------------------------------------------------- */

/* From the top: 1 bit "failed", 7 rank, 4 stage, 21 token, 31 epoch (its low bits). */
enum { RANK_AT = 56, STAGE_AT = 52, TOKEN_AT = 31 };
static_assert(ARF_MAX_RANKS <= 128 && ARF_HOST_UNFUSED_ROW < 16 && ARF_MAX_TOKENS <= 1 << 21,
              "a culprit fits in one word");
#define LOW(bits) ((UINT64_C(1) << (bits)) - 1)

static uint64_t pack_culprit(const arf_host_wait *wait)
{
    return UINT64_C(1) << 63 | (uint64_t)wait->peer << RANK_AT | (uint64_t)wait->stage << STAGE_AT |
           ((uint64_t)wait->token & LOW(21)) << TOKEN_AT | (wait->epoch & LOW(31));
}

bool arf_host_failed(const arf_host_control *control, arfuse_culprit *culprit)
{
    uint64_t word = atomic_load_explicit(&control->failure.word, memory_order_relaxed);
    if (word == 0)
        return false;
    if (culprit) {
        culprit->rank = (int)(word >> RANK_AT & LOW(7));
        culprit->stage = (int)(word >> STAGE_AT & LOW(4));
        culprit->token = (int64_t)(word >> TOKEN_AT & LOW(21));
        culprit->epoch = word & LOW(31);
    }
    return true;
}

/* The word of rank 0 decides who was first; everyone else's word gets a copy of it. A region lives
 * as long as anyone maps it, so a dead rank's words can be written like any other's. */
static void spread_failure(const arf_host_wait *wait)
{
    const arf_host_space *space = wait->self->space;
    uint64_t first = pack_culprit(wait);
    for (int rank = 0; rank < space->base.spec.shape.tp_size; rank++) {
        arf_host_control *control = (arf_host_control *)space->region[rank];
        uint64_t found = 0;
        if (!atomic_compare_exchange_strong_explicit(&control->failure.word, &found, first,
                                                     memory_order_relaxed, memory_order_relaxed) &&
            rank == 0)
            first = found;
    }
}

const char *arf_host_stage_name(int stage)
{
    switch ((arf_host_stage)stage) {
    case ARF_HOST_BARRIER:
        return "barrier";
    case ARF_HOST_LL_CONTRIBUTION:
        return "ll contribution";
    case ARF_HOST_BT_CONTRIBUTION:
        return "bt contribution";
    case ARF_HOST_BT_ROW:
        return "bt row";
    case ARF_HOST_HT_CONTRIBUTION:
        return "ht contribution";
    case ARF_HOST_HT_ROW:
        return "ht row";
    case ARF_HOST_UNFUSED_CONTRIBUTION:
        return "unfused contribution";
    case ARF_HOST_UNFUSED_ROW:
        return "unfused row";
    }
    return "unknown stage";
}

/* ---- polling --------------------------------------------------------------------------------- */

/*
 * A row comes from an owner that itself waits for contributions: it gets a little longer, so that
 * the owner, which knows who is really missing, is the first to give up.
 */
static bool waits_on_a_waiter(arf_host_stage stage)
{
    return stage == ARF_HOST_BT_ROW || stage == ARF_HOST_HT_ROW || stage == ARF_HOST_UNFUSED_ROW;
}

static double limit_of(const arf_host_wait *wait)
{
    double limit = wait->self->space->base.spec.wait_limit_seconds;
    if (limit <= 0 || !waits_on_a_waiter(wait->stage))
        return limit;
    return limit + (limit < 4 ? limit / 4 : 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define LIMIT_CHECK 64 /* empty polls between looks at the clock and the sticky word */

typedef struct patience {
    int64_t polls;
    double deadline;
} patience;

/* After an empty poll. False: give up. */
static bool be_patient(const arf_host_wait *wait, patience *p)
{
    if (p->polls++ >= wait->yield_after)
        sched_yield();
    if (p->polls % LIMIT_CHECK != 0)
        return true;
    if (arf_host_failed(wait->self->control, NULL))
        return false;
    double limit = limit_of(wait);
    if (limit <= 0)
        return true;
    if (p->deadline == 0)
        p->deadline = now() + limit;
    if (now() < p->deadline)
        return true;
    spread_failure(wait);
    return false;
}

bool arf_host_await_data(const arf_host_wait *wait, arf_word *word, uint64_t *value)
{
    patience p = {0, 0};
    while ((*value = atomic_load_explicit(word, memory_order_relaxed)) == ARF_HOST_EMPTY)
        if (!be_patient(wait, &p))
            return false;
    return true;
}

bool arf_host_await_count(const arf_host_wait *wait, arf_word *word, uint64_t count)
{
    patience p = {0, 0};
    while (atomic_load_explicit(word, memory_order_acquire) < count)
        if (!be_patient(wait, &p))
            return false;
    return true;
}

bool arf_host_barrier(arf_host_rank *self)
{
    const arf_host_space *space = self->space;
    arf_word *own = &self->control->barrier.word;
    uint64_t count = atomic_load_explicit(own, memory_order_relaxed) + 1;
    atomic_store_explicit(own, count, memory_order_release);
    for (int rank = 0; rank < space->base.spec.shape.tp_size; rank++) {
        arf_host_wait wait = {.self = self,
                              .peer = rank,
                              .stage = ARF_HOST_BARRIER,
                              .yield_after = 64,
                              .epoch = count - 1};
        arf_host_control *control = (arf_host_control *)space->region[rank];
        if (!arf_host_await_count(&wait, &control->barrier.word, count))
            return false;
    }
    return true;
}

/* ---- mailboxes ------------------------------------------------------------------------------- */

enum { HALF = ARF_PACK / 2 }; /* values */

void arf_host_put(arf_word *slot, const arf_bf16 *values, int count)
{
    for (int i = 0; i < count / HALF; i++) {
        uint64_t half;
        memcpy(&half, values + i * HALF, sizeof half);
        atomic_store_explicit(&slot[i], half, memory_order_relaxed);
    }
}

bool arf_host_take(const arf_host_wait *wait, arf_word *slot, arf_bf16 *values, int count)
{
    for (int i = 0; i < count / HALF; i++) {
        uint64_t half = atomic_load_explicit(&slot[i], memory_order_relaxed);
        if (half == ARF_HOST_EMPTY && !arf_host_await_data(wait, &slot[i], &half))
            return false;
        memcpy(values + i * HALF, &half, sizeof half);
        atomic_store_explicit(&slot[i], ARF_HOST_EMPTY, memory_order_relaxed);
    }
    return true;
}
