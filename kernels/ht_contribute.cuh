/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT, the way out: the loader fills the ring, consumers empty it and send the
 * contribution to the owner, the publisher tells the owner. The block takes every
 * (blocks)-th token.
 */
#ifndef ARF_KERNELS_HT_CONTRIBUTE_CUH
#define ARF_KERNELS_HT_CONTRIBUTE_CUH

#include "fragment.cuh"
#include "ht.cuh"

/* ---- loader: one warp ----------------------------------------------------------------------- */

/* The next stage gets a tile from `from`; NULL: nothing but the note. All lanes call; the first one
 * alone waits, for whom nothing but itself fills the stage: to another the phase could be gone,
 * filled, emptied and over once more, before it looked. */
ARF_DEVICE void arf_ht_fill(arf_ht_shared &shared, arf_ht_ring &ring, const char *from,
                            float weight, int kind)
{
    constexpr unsigned bytes = ARF_TILE * 16;
    if (threadIdx.x % 32 == 0) {
        /* Parity 1 first: a stage that nobody has used is empty. */
        arf_phase_wait(&shared.empty[ring.stage], ring.parity ^ 1);
        shared.note[ring.stage] = {weight, kind};
        if (from) {
            arf_phase_expect(&shared.full[ring.stage], bytes);
            arf_bulk_load(shared.tile[ring.stage], from, bytes, &shared.full[ring.stage]);
        } else {
            arf_phase_arrive(&shared.full[ring.stage]);
        }
    }
    ring.next();
}

#if ARF_FINALIZE && ARF_K > 0
/* A token's slots, lane l has those of l and l + 32. */
struct arf_ht_slots {
    static constexpr int halves = (ARF_K + 31) / 32;
    int row[halves]; /* -1: dropped, or beyond K */
    float weight[halves];
};
ARF_DEVICE arf_ht_slots arf_ht_load_slots(const arf_ht_call &here, int token)
{
    arf_ht_slots slots;
#pragma unroll
    for (int half = 0; half < slots.halves; half++) {
        const int k = half * 32 + (int)threadIdx.x % 32;
        const long long at = (long long)token * ARF_K + k;
        slots.row[half] = -1, slots.weight[half] = 0.0f;
        if (k >= ARF_K || token >= here.tokens)
            continue;
        slots.row[half] = (int)arf_load_word(here.own.indices + at);
        slots.weight[half] =
            here.call.flags & ARF_WEIGHTS_ARE_FP32
                ? __uint_as_float(arf_load_word((const float *)here.own.weights + at))
                : arf_low(arf_load_half((const unsigned short *)here.own.weights + at));
    }
    return slots;
}

/* The expert rows of a tile with k ascending, then the shared expert's. Dropped slots take no
 * stage: their row is not read and adds nothing. */
ARF_DEVICE void arf_ht_load_tile(const arf_ht_call &here, arf_ht_shared &shared, arf_ht_ring &ring,
                                 const arf_ht_slots &slots, int token, int tile)
{
    const long long column = (long long)tile * ARF_TILE * 16;
    int left = ARF_SHARED;
#pragma unroll
    for (int half = 0; half < slots.halves; half++)
        left += arf_lanes_where(slots.row[half] >= 0);
    if (left == 0)
        arf_ht_fill(shared, ring, nullptr, 0.0f, ARF_HT_LAST);
#pragma unroll 1
    for (int k = 0; k < ARF_K; k++) {
        const int half = k < 32 ? 0 : slots.halves - 1;
        const int row =
            arf_lane_value(half == 0 ? slots.row[0] : slots.row[slots.halves - 1], k % 32);
        const float weight =
            arf_lane_value(half == 0 ? slots.weight[0] : slots.weight[slots.halves - 1], k % 32);
        if (row < 0)
            continue;
        left--;
        arf_ht_fill(shared, ring,
                    (const char *)here.own.routed + (long long)row * (ARF_H * 2) + column,
                    arf_mul(weight, here.call.routed_scale),
                    left == 0 ? ARF_HT_ROW | ARF_HT_LAST : ARF_HT_ROW);
    }
    if (ARF_SHARED)
        arf_ht_fill(shared, ring,
                    (const char *)here.own.shared + (long long)token * (ARF_H * 2) + column, 0.0f,
                    ARF_HT_SHARED_ROW | ARF_HT_LAST);
}
#endif

ARF_DEVICE void arf_ht_load(const arf_ht_call &here, arf_ht_shared &shared)
{
    arf_ht_ring ring = {0, 0};
#if ARF_FINALIZE && ARF_K > 0
    /* A token ahead: the ring may hold less than one, so the copies would wait for the slots. */
    arf_ht_slots slots = arf_ht_load_slots(here, here.block);
    for (int token = here.block; token < here.tokens; token += here.blocks) {
        const arf_ht_slots next = arf_ht_load_slots(here, token + here.blocks);
        for (int tile = 0; tile < ARF_TILES; tile++)
            arf_ht_load_tile(here, shared, ring, slots, token, tile);
        slots = next;
    }
#else
    for (int token = here.block; token < here.tokens; token += here.blocks)
        for (int tile = 0; tile < ARF_TILES; tile++)
            arf_ht_fill(shared, ring,
                        (const char *)here.own.input +
                            ((long long)token * ARF_PACKS + tile * ARF_TILE) * 16,
                        0.0f, ARF_HT_ROW | ARF_HT_LAST);
#endif
}

/* ---- consumers ------------------------------------------------------------------------------ */

/* This warp has read its part of the stage. */
ARF_DEVICE void arf_ht_leave(arf_ht_shared &shared, arf_ht_ring &ring)
{
    arf_warp_barrier();
    if (threadIdx.x % 32 == 0)
        arf_phase_arrive(&shared.empty[ring.stage]);
    ring.next();
}

/* Sums the stages of one tile: x becomes the contribution, before -0.0 is replaced. */
ARF_DEVICE void arf_ht_sum_tile(arf_ht_shared &shared, arf_ht_ring &ring,
                                arf_fragment<8> (&x)[ARF_VECTORS])
{
#if ARF_FINALIZE && ARF_K > 0
    float sum[ARF_VECTORS][8] = {};
    int kind;
    do {
        arf_phase_wait(&shared.full[ring.stage], ring.parity);
        const arf_ht_note note = shared.note[ring.stage];
        kind = note.kind;
#pragma unroll
        for (int v = 0; v < ARF_VECTORS; v++)
            if (kind & (ARF_HT_ROW | ARF_HT_SHARED_ROW)) {
                const arf_pack p = shared.tile[ring.stage][v * ARF_THREADS + (int)threadIdx.x];
                const arf_fragment<8> f = {{p.x, p.y, p.z, p.w}};
                if (kind & ARF_HT_ROW)
                    arf_fragment_fma<8>(note.weight, f, sum[v]);
                else
                    arf_fragment_add<8>(f, sum[v]);
            }
        arf_ht_leave(shared, ring);
    } while (!(kind & ARF_HT_LAST));
#pragma unroll
    for (int v = 0; v < ARF_VECTORS; v++)
        x[v] = arf_fragment_narrow<8>(sum[v]);
#else
    arf_phase_wait(&shared.full[ring.stage], ring.parity);
#pragma unroll
    for (int v = 0; v < ARF_VECTORS; v++) {
        const arf_pack p = shared.tile[ring.stage][v * ARF_THREADS + (int)threadIdx.x];
        x[v] = {{p.x, p.y, p.z, p.w}};
    }
    arf_ht_leave(shared, ring);
#endif
}

/* This rank's contribution to a token, to the token's owner; `sent`: the block's tokens with this
 * one. */
ARF_DEVICE void arf_ht_contribute(const arf_ht_call &here, arf_ht_shared &shared, arf_ht_ring &ring,
                                  int token, unsigned sent)
{
    char *owner = here.team.peer[arf_ht_owner(token)];
    for (int tile = 0; tile < ARF_TILES; tile++) {
        arf_fragment<8> x[ARF_VECTORS];
        arf_ht_sum_tile(shared, ring, x);
        char *to =
            owner + arf_ht_contribution(here.team, token,
                                        here.rank * ARF_PACKS + tile * ARF_TILE + (int)threadIdx.x);
#pragma unroll
        for (int v = 0; v < ARF_VECTORS; v++) {
            arf_fragment_make_sendable(x[v]);
            arf_fragment_send<8>(to + v * ARF_THREADS * 16, x[v]);
        }
    }
    arf_warp_barrier();
    if (threadIdx.x % 32 == 0)
        arf_tell(&shared.sent[threadIdx.x / 32], sent);
}

/* ---- publisher: one warp -------------------------------------------------------------------- */

/*
 * A release waits until everything before it has reached the peers; here it is no consumer that
 * stands still for that. Tokens that were finished meanwhile are told together, a lane each.
 */
ARF_DEVICE void arf_ht_publish(const arf_ht_call &here, const arf_ht_shared &shared)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned total =
        here.block < here.tokens ? (unsigned)((here.tokens - 1 - here.block) / here.blocks + 1) : 0;
    for (unsigned told = 0; told < total;) {
        const unsigned sent = lane < ARF_CONSUMER_WARPS ? arf_heard(&shared.sent[lane]) : total;
        const unsigned least = arf_lane_least(sent);
        if (least == told) {
            arf_rest(ARF_MARK_REST_NS);
            continue;
        }
        arf_warp_barrier(); /* what one lane has heard of is now behind every lane's release */
        for (unsigned i = told + (unsigned)lane; i < least; i += 32) {
            const int token = here.block + (int)i * here.blocks;
            arf_send_release(arf_ht_ready(here.team, arf_ht_owner(token), token, here.rank),
                             here.epoch + 1);
        }
        told = least;
    }
}

#endif
