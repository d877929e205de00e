/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that end. The first wait to pass its limit writes who was missing into
 * the sticky word of every rank; all others see their own rank's word and end.
 */
#ifndef ARF_KERNELS_WAIT_CUH
#define ARF_KERNELS_WAIT_CUH

#include "numerics.cuh"

ARF_DEVICE arf_control *arf_control_of(const arf_team_view &team, int rank)
{
    return (arf_control *)team.peer[rank];
}

/* Local rank of this block, and how blocks share rows: see arguments.h, GRID. */
ARF_DEVICE int arf_local_rank(void)
{
    return (int)(blockIdx.x % ARF_LOCAL_RANKS);
}
ARF_DEVICE long long arf_first_row(void)
{
    return blockIdx.x / ARF_LOCAL_RANKS;
}
ARF_DEVICE long long arf_row_step(void)
{
    return gridDim.x / ARF_LOCAL_RANKS;
}
/* One thread of a local rank's part of the grid. */
ARF_DEVICE bool arf_is_first_thread(void)
{
    return blockIdx.x < ARF_LOCAL_RANKS && blockIdx.y == 0 && threadIdx.x == 0;
}

/* Of a kernel that waits for peers: the next one may start, unless there is no room for both. */
ARF_DEVICE void arf_trigger_next(const arf_call &call)
{
    if (!(call.flags & ARF_TRIGGER_NEVER))
        arf_grid_trigger();
}

/* The call has failed before this wait began: the word is set for good. */
ARF_DEVICE bool arf_is_failed(const arf_control *control)
{
    return arf_look_word(&control->culprit) != 0;
}

/* Writes the culprit to every rank and once to the host; an earlier one stands: whoever
 * wrote that told the others. */
ARF_DEVICE void arf_report(const arf_team_view &team, arf_control *own, arf_word culprit)
{
    const arf_word earlier = arf_swap_if(&own->culprit, 0, culprit);
    if (earlier)
        culprit = earlier;
    else
#pragma unroll 1
        for (int rank = 0; rank < ARF_R; rank++)
            arf_swap_if(&arf_control_of(team, rank)->culprit, 0, culprit);
    if (team.mirror && arf_look_word(team.mirror) == 0)
        arf_send_word(team.mirror, culprit);
}

#define ARF_LOOKS_PER_CHECK 64 /* a check reads the timer and the sticky word: keep it rare */

/*
 * Who waits for an owner's rows waits twice as long as the owner waits for contributions: the owner
 * may itself be waiting, and then it is the one that knows who is missing.
 */
ARF_DEVICE arf_word arf_patience(const arf_team_view &team, arf_word culprit)
{
    const int stage = ARF_CULPRIT_STAGE(culprit);
    const bool second =
        stage == ARF_STAGE_BT_NORM || stage == ARF_STAGE_UNFUSED_NORM || stage == ARF_STAGE_HT_NORM;
    return second ? 2 * team.wait_limit_ns : team.wait_limit_ns;
}

/*
 * After ARF_LOOKS_PER_CHECK looks that found something missing: true to look on. False: the wait
 * has failed, everyone has been told, and the row must be given up. `start` is 0 at the first check
 * and belongs to the wait. Not inlined: what it needs must not take registers from the loads in
 * flight.
 */
static __device__ __noinline__ bool arf_look_on(const arf_team_view &team, arf_control *own,
                                                arf_word &start, arf_word culprit)
{
    const arf_word word = arf_look_word(&own->culprit);
    if (word) {
        arf_report(team, own, word); /* brings it to the host */
        return false;
    }
    if (team.wait_limit_ns == 0)
        return true;
    const arf_word now = arf_now();
    if (start == 0)
        start = now;
    if (now - start < arf_patience(team, culprit))
        return true;
    arf_report(team, own, culprit);
    return false;
}

/* Waits until *counter is at least `least`; then sees all that came before it. */
ARF_DEVICE bool arf_wait_counter(const arf_team_view &team, arf_control *own,
                                 const arf_word *counter, arf_word least, arf_word culprit)
{
    arf_word start = 0;
    for (unsigned looks = 1; arf_look_acquire(counter) < least; looks++)
        if (looks % ARF_LOOKS_PER_CHECK == 0 && !arf_look_on(team, own, start, culprit))
            return false;
    return true;
}

/* Between two looks at a mark: other warps of the multiprocessor have work to do. */
#define ARF_MARK_REST_NS 32

/*
 * The same for waits beside which other warps work: looks without order and rests in between, and
 * acquires once, when the value is there.
 */
ARF_DEVICE bool arf_wait_mark(const arf_team_view &team, arf_control *own, const arf_word *mark,
                              arf_word least, arf_word culprit)
{
    arf_word start = 0;
    for (unsigned looks = 1; arf_look_word(mark) < least; looks++) {
        if (looks % ARF_LOOKS_PER_CHECK == 0 && !arf_look_on(team, own, start, culprit))
            return false;
        arf_rest(ARF_MARK_REST_NS);
    }
    return arf_look_acquire(mark) >= least; /* always: marks only grow */
}

/* Holds the sentinel when a pack of ranks below ARF_R does. */
template <int count>
ARF_DEVICE unsigned arf_least_of(const arf_pack (&pack)[count], int first)
{
    unsigned least = 0;
#pragma unroll
    for (int i = 0; i < count; i++)
        if (first + i < ARF_R)
            least = arf_least(least, pack[i]);
    return least;
}

/*
 * Waits for `count` packs, `stride` bytes apart, of ranks first .. first + count - 1 (those below
 * ARF_R), and leaves them in `pack`. All loads are in flight at once; only what is missing is
 * looked at again. `culprit` names rank 0. False: failed, `pack` is not to be used.
 */
template <int count>
ARF_DEVICE bool arf_wait_packs(arf_pack (&pack)[count], const char *at, arf_word stride, int first,
                               const arf_team_view &team, arf_control *own, arf_word culprit)
{
#pragma unroll
    for (int i = 0; i < count; i++)
        if (first + i < ARF_R)
            pack[i] = arf_look(at + i * stride);
    unsigned least = arf_least_of<count>(pack, first);
    arf_word start = 0;
    for (unsigned looks = 1; arf_has_sentinel(least); looks++) {
        if (looks % ARF_LOOKS_PER_CHECK == 0) {
            int missing = 0; /* the lowest rank whose pack has not arrived */
#pragma unroll
            for (int i = count - 1; i >= 0; i--)
                if (first + i < ARF_R && !arf_arrived(pack[i]))
                    missing = first + i;
            if (!arf_look_on(team, own, start, culprit | (arf_word)missing << 56))
                return false;
        }
#pragma unroll
        for (int i = 0; i < count; i++)
            if (first + i < ARF_R && !arf_arrived(pack[i]))
                pack[i] = arf_look(at + i * stride);
        least = arf_least_of<count>(pack, first);
    }
    return true;
}

#endif
