/* SPDX-License-Identifier: Apache-2.0 */
/* The row functions against the element functions on the same rows, and the ratio of the two. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "device/reference.h"
#include "device/trial_data.h"

enum { HIDDEN = 6144, RANKS = 8, TOP_K = 10, CALLS = 300, ROUNDS = 7 };

static arf_bf16 input[RANKS][HIDDEN], routed[TOP_K][HIDDEN], shared[HIDDEN], residual[HIDDEN];
static arf_bf16 gamma_row[HIDDEN], out[HIDDEN], norm[HIDDEN];
static const arf_bf16 *from[RANKS];
static arf_slots slots = {.count = TOP_K};
static volatile float sink;

static void finalize_rows(void)
{
    arf_finalize_row(&slots, shared, 0, HIDDEN, out);
}

static void finalize_elements(void)
{
    for (int h = 0; h < HIDDEN; h++) {
        float acc = 0.0f;
        for (int k = 0; k < TOP_K; k++)
            acc = fmaf(slots.weight[k], arf_bf16_to_float(slots.row[k][h]), acc);
        out[h] = arf_contribution(arf_float_to_bf16(acc + arf_bf16_to_float(shared[h])));
    }
}

static void reduce_rows(void)
{
    arf_reduce_row(from, RANKS, residual, HIDDEN, out);
}

static void reduce_elements(void)
{
    for (int h = 0; h < HIDDEN; h++) {
        float term[RANKS];
        for (int r = 0; r < RANKS; r++)
            term[r] = arf_bf16_to_float(from[r][h]);
        out[h] = arf_float_to_bf16(arf_tree_sum(term, RANKS) + arf_bf16_to_float(residual[h]));
    }
}

static void normalise_rows(void)
{
    sink = arf_squares_row(out, HIDDEN);
    arf_normalise_row(out, 0.5f, gamma_row, 0.0f, HIDDEN, norm);
}

static void normalise_elements(void)
{
    float packs[HIDDEN / ARF_PACK];
    for (int p = 0; p < HIDDEN / ARF_PACK; p++)
        packs[p] = arf_pack_squares(out + p * ARF_PACK);
    sink = arf_tree_sum(packs, HIDDEN / ARF_PACK);
    for (int h = 0; h < HIDDEN; h++)
        norm[h] = arf_normalised(out[h], 0.5f, gamma_row[h], 0.0f);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double time_of(void (*work)(void))
{
    const double start = seconds();
    for (int i = 0; i < CALLS; i++)
        work();
    return (seconds() - start) / CALLS * 1e6;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void race(const char *name, void (*rows)(void), void (*elements)(void))
{
    double a[ROUNDS], b[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) { /* in turns, so that both see one machine */
        a[round] = time_of(rows);
        b[round] = time_of(elements);
    }
    qsort(a, ROUNDS, sizeof a[0], ascending);
    qsort(b, ROUNDS, sizeof b[0], ascending);
    printf("%-28s rows %7.2f us  elements %7.2f us  ratio %.2f\n", name, a[ROUNDS / 2],
           b[ROUNDS / 2], b[ROUNDS / 2] / a[ROUNDS / 2]);
}

int main(void)
{
    const arf_shape shape = {.tp_size = RANKS,
                             .hidden_size = HIDDEN,
                             .top_k = TOP_K,
                             .rms_norm = ARF_ON,
                             .residual = ARF_ON,
                             .shared_expert = ARF_ON};
    const arf_trial_data data = arf_trial_data_of(&shape, 64, ARF_TRIAL_RANDOM, 1);
    for (int r = 0; r < RANKS; r++) {
        arf_trial_input(&data, r, 0, input[r]);
        from[r] = input[r];
    }
    for (int k = 0; k < TOP_K; k++) {
        arf_trial_routed(&data, 0, k + 1, routed[k]);
        slots.row[k] = routed[k];
        slots.weight[k] = 0.1f * (float)(k + 1);
    }
    arf_trial_shared(&data, 0, 0, shared);
    arf_trial_residual(&data, 0, residual);
    arf_trial_gamma(&data, gamma_row);
    printf("one token, H=%d, R=%d, K=%d; median of %d rounds of %d calls\n", HIDDEN, RANKS, TOP_K,
           ROUNDS, CALLS);
    race("finalize", finalize_rows, finalize_elements);
    race("reduce", reduce_rows, reduce_elements);
    race("squares and norm", normalise_rows, normalise_elements);
    return 0;
}
