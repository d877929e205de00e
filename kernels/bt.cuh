/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BT: a contribution goes to the rank that owns the token (or that slice of
 * every token); the owner sums, adds the residual and pushes the pre-norm row to
 * all; everybody normalises. Both mailboxes use the payload as its own flag.
 *
 * The pre-norm row may pass through a mailbox as it is, since it never holds
 * -0.0: every addend is a multiple of the smallest bf16 subnormal, so no sum is
 * rounded to zero from below, and x + (-x) is +0.0.
 */
#ifndef ARF_KERNELS_BT_CUH
#define ARF_KERNELS_BT_CUH

#include "wait.cuh"

/* Packs of a token that one owner has. */
#define ARF_BT_WIDTH (ARF_SLICES ? ARF_PACKS / ARF_R : ARF_PACKS)

ARF_DEVICE int arf_bt_owner(long long token, int pack)
{
    return ARF_SLICES ? pack / ARF_BT_WIDTH : (int)(token % ARF_R);
}
/* The owner's slot of a token, and tokens that one rank has slots for. */
ARF_DEVICE arf_word arf_bt_slot(long long token)
{
    return (arf_word)(ARF_SLICES ? token : token / ARF_R);
}
ARF_DEVICE arf_word arf_bt_slots(long long tokens)
{
    return (arf_word)(ARF_SLICES ? tokens : (tokens + ARF_R - 1) / ARF_R);
}
/* Slots that `rank` really fills: owner of m is m mod R. */
ARF_DEVICE arf_word arf_bt_owned(long long tokens, int rank)
{
    return (arf_word)(ARF_SLICES ? tokens : (tokens + ARF_R - 1 - rank) / ARF_R);
}

/* Byte offset in the owner's segment of source 0's pack; sources are ARF_BT_WIDTH packs apart.
 * `column` counts packs inside the owner's width. */
ARF_DEVICE arf_word arf_bt_contribution(const arf_team_view &team, arf_word epoch, arf_word slot,
                                        int column)
{
    const arf_word generation = epoch % ARF_MAILBOX_GENERATIONS;
    const arf_word row = generation * arf_bt_slots(team.bt_capacity) + slot;
    return team.bt_contribution + (row * (arf_word)(ARF_R * ARF_BT_WIDTH) + (arf_word)column) * 16;
}
/* Byte offset in every segment of a pack of the pre-norm row. */
ARF_DEVICE arf_word arf_bt_row(const arf_team_view &team, arf_word epoch, long long token, int pack)
{
    const arf_word generation = epoch % ARF_MAILBOX_GENERATIONS;
    const arf_word row = generation * (arf_word)team.bt_capacity + (arf_word)token;
    return team.bt_row + (row * ARF_PACKS + (arf_word)pack) * 16;
}

#endif
