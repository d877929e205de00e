/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/wait.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* ---- the sticky word ------------------------------------------------------------------------- */

/* From the top: 1 bit "failed", 7 rank, 4 stage, 21 token, 31 epoch (its low bits). */
enum { RANK_AT = 56, STAGE_AT = 52, TOKEN_AT = 31 };
static_assert(ARF_MAX_RANKS <= 128 && ARF_HOST_LAUNCH < 16 && ARF_MAX_TOKENS <= 1 << 21,
              "a culprit fits in one word");
#define LOW(bits) ((UINT64_C(1) << (bits)) - 1)

static uint64_t pack_culprit(const arf_host_wait *wait)
{
    return UINT64_C(1) << 63 | (uint64_t)wait->peer << RANK_AT | (uint64_t)wait->stage << STAGE_AT |
           ((uint64_t)wait->token & LOW(21)) << TOKEN_AT | (wait->epoch & LOW(31));
}

static int peer_in(uint64_t word)
{
    return (int)(word >> RANK_AT & LOW(7));
}

bool arf_host_failed(const arf_host_control *control, arfuse_culprit *culprit)
{
    uint64_t word = atomic_load_explicit(&control->failure.word, memory_order_relaxed);
    if (word == 0)
        return false;
    if (culprit) {
        culprit->rank = peer_in(word);
        culprit->stage = (int)(word >> STAGE_AT & LOW(4));
        culprit->token = (int64_t)(word >> TOKEN_AT & LOW(21));
        culprit->epoch = word & LOW(31);
    }
    return true;
}

static arf_host_control *control_of(const arf_host_rank *self, int rank)
{
    return (arf_host_control *)self->space->region[rank];
}

/* The word of rank 0 decides who was first; everyone else's word gets a copy of it. A region lives
 * as long as anyone maps it, so a dead rank's words can be written like any other's. */
static void spread_failure(const arf_host_rank *self, uint64_t first)
{
    for (int rank = 0; rank < self->space->base.spec.shape.tp_size; rank++) {
        uint64_t found = 0;
        if (!atomic_compare_exchange_strong_explicit(&control_of(self, rank)->failure.word, &found,
                                                     first, memory_order_relaxed,
                                                     memory_order_relaxed) &&
            rank == 0)
            first = found;
    }
}

void arf_host_give_up(arf_host_rank *self, int64_t tokens)
{
    const arf_host_wait none = {
        .self = self, .peer = self->rank, .stage = ARF_HOST_LAUNCH, .token = tokens};
    spread_failure(self, pack_culprit(&none));
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
    case ARF_HOST_LAUNCH:
        return "launch";
    }
    return "unknown stage";
}

/* ---- polling --------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void beat(arf_host_rank *self)
{
    arf_word *word = &self->control->beat.word;
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* A waiting rank beats every LIMIT_CHECK polls; half a second is far more, even where many
 * ranks share a core. */
#define BEAT_SECONDS 0.5

static bool beats(arf_host_rank *self, int rank)
{
    arf_word *word = &control_of(self, rank)->beat.word;
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
    double end = now() + BEAT_SECONDS;
    while (atomic_load_explicit(word, memory_order_relaxed) == before) {
        if (now() > end)
            return false;
        beat(self); /* others may be asking the same about this rank */
        sched_yield();
    }
    return true;
}

/*
 * The rank that is waited for may itself be waiting: for the one that is really missing, in an
 * earlier step or an earlier call. So the limit's end names the last of the chain: one that waits
 * for nobody, or says it waits but no longer runs.
 */
static uint64_t root_cause(const arf_host_wait *wait)
{
    arf_host_rank *self = wait->self;
    uint64_t cause = pack_culprit(wait);
    for (int step = 0; step < self->space->base.spec.shape.tp_size; step++) {
        int rank = peer_in(cause);
        uint64_t next =
            atomic_load_explicit(&control_of(self, rank)->waiting.word, memory_order_relaxed);
        if (next == 0 || rank == self->rank || !beats(self, rank))
            break;
        cause = next;
    }
    return cause;
}

#define LIMIT_CHECK 64 /* empty polls between looks at the clock and the sticky word */

typedef struct patience {
    int64_t polls;
    double deadline;
} patience;

/* After an empty poll. False: give up. */
static bool be_patient(const arf_host_wait *wait, patience *p)
{
    arf_host_rank *self = wait->self;
    ARF_HOST_POLL_TURN();
    if (p->polls++ >= wait->yield_after)
        sched_yield();
    if (p->polls % LIMIT_CHECK != 0)
        return true;
    if (arf_host_failed(self->control, NULL))
        return false;
    if (p->polls == LIMIT_CHECK)
        atomic_store_explicit(&self->control->waiting.word, pack_culprit(wait),
                              memory_order_relaxed);
    beat(self);
    double limit = self->space->base.spec.wait_limit_seconds;
    if (limit <= 0)
        return true;
    if (p->deadline == 0)
        p->deadline = now() + limit;
    if (now() < p->deadline)
        return true;
    uint64_t cause = root_cause(wait);
    if (!arf_host_failed(self->control, NULL)) /* somebody may have been faster meanwhile */
        spread_failure(self, cause);
    return false;
}

static void end_of_wait(const arf_host_wait *wait, const patience *p)
{
    if (p->polls >= LIMIT_CHECK)
        atomic_store_explicit(&wait->self->control->waiting.word, 0, memory_order_relaxed);
}

bool arf_host_await_data(const arf_host_wait *wait, arf_word *word, uint64_t *value)
{
    patience p = {0, 0};
    while ((*value = atomic_load_explicit(word, memory_order_relaxed)) == ARF_HOST_EMPTY)
        if (!be_patient(wait, &p))
            return false;
    end_of_wait(wait, &p);
    return true;
}

bool arf_host_await_count(const arf_host_wait *wait, arf_word *word, uint64_t count)
{
    patience p = {0, 0};
    ARF_HOST_TURN();
    while (atomic_load_explicit(word, memory_order_acquire) < count)
        if (!be_patient(wait, &p))
            return false;
    end_of_wait(wait, &p);
    return true;
}

bool arf_host_barrier(arf_host_rank *self)
{
    const arf_host_space *space = self->space;
    arf_word *own = &self->control->barrier.word;
    uint64_t count = atomic_load_explicit(own, memory_order_relaxed) + 1;
    ARF_HOST_TURN();
    atomic_store_explicit(own, count, memory_order_release);
    for (int rank = 0; rank < space->base.spec.shape.tp_size; rank++) {
        arf_host_wait wait = {.self = self,
                              .peer = rank,
                              .stage = ARF_HOST_BARRIER,
                              .yield_after = 64,
                              .epoch = count - 1};
        if (!arf_host_await_count(&wait, &control_of(self, rank)->barrier.word, count))
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
        ARF_HOST_TURN();
        atomic_store_explicit(&slot[i], half, memory_order_relaxed);
    }
}

bool arf_host_take(const arf_host_wait *wait, arf_word *slot, arf_bf16 *values, int count)
{
    for (int i = 0; i < count / HALF; i++) {
        ARF_HOST_TURN();
        uint64_t half = atomic_load_explicit(&slot[i], memory_order_relaxed);
        if (half == ARF_HOST_EMPTY && !arf_host_await_data(wait, &slot[i], &half))
            return false;
        memcpy(values + i * HALF, &half, sizeof half);
        ARF_HOST_TURN();
        atomic_store_explicit(&slot[i], ARF_HOST_EMPTY, memory_order_relaxed);
    }
    return true;
}
