/* SPDX-License-Identifier: Apache-2.0 */
#include "device/trial_data.h"

enum tensor { INPUT, SHARED, ROUTED, PAIR, RESIDUAL, GAMMA, SLOTS };

/* ---- bits ----------------------------------------------------------------------------------- */

/* The finaliser of splitmix64 (Steele, Lea, Flood, 2014): every output bit hangs on every input
 * bit, so a counter makes a good generator. */
static inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
#define GOLDEN 0x9e3779b97f4a7c15u

static uint64_t key_of(const arf_trial_data *data, enum tensor tensor, int rank, int64_t row)
{
    uint64_t key = mix(data->seed + GOLDEN * (1 + (uint64_t)tensor));
    key = mix(key + GOLDEN * (1 + (uint64_t)rank));
    return mix(key + GOLDEN * (1 + (uint64_t)row));
}

static inline uint64_t draw(uint64_t key, uint64_t counter)
{
    return mix(key + GOLDEN * (counter + 1));
}

static void fill(arf_bf16 *row, int count, arf_bf16 bits)
{
    for (int i = 0; i < count; i++)
        row[i] = bits;
}

static inline arf_bf16 float_bits(unsigned bits, int exponent, unsigned exponent_mask)
{
    return (arf_bf16)((bits & 0x8000u) |
                      (((unsigned)(127 + exponent) + (bits >> 7 & exponent_mask)) << 7) |
                      (bits & 0x7fu));
}

/* Both signs, all mantissas, magnitudes 2^-8 to 2^8. */
static void mixed_row(uint64_t key, int hidden, arf_bf16 *row)
{
    for (int i = 0; i < hidden; i += 4) {
        const uint64_t bits = draw(key, (uint64_t)i);
        for (int e = 0; e < 4; e++)
            row[i + e] = float_bits((unsigned)(bits >> 16 * e & 0xffffu), -8, 15);
    }
}

/* ---- random rows ------------------------------------------------------------------------------
 */

/*
 * A bf16 result shows the order of its fp32 sum only where large terms cancel: elsewhere such sums
 * are exact, or differ far below the last bit kept. So half of the elements have two opposed terms
 * among the participants (the ranks, and the residual behind them), and the rest of the sum, small
 * beside these, keeps what the order leaves of it.
 */
static void oppose(const arf_trial_data *data, int64_t token, int participant, arf_bf16 *row)
{
    const unsigned participants =
        (unsigned)data->shape.tp_size + (data->shape.residual == ARF_ON ? 1u : 0u);
    if (participants < 2)
        return;
    /* Inputs and shared rows alike meet the residual of their token: one key for all three. */
    const uint64_t key = key_of(data, RESIDUAL, -1, token);
    for (int i = 0; i < data->shape.hidden_size; i += 2) {
        const uint64_t pair = draw(key, (uint64_t)i);
        for (int e = 0; e < 2; e++) {
            const unsigned bits = (unsigned)(pair >> 32 * e & 0xffffffffu);
            const unsigned one = (bits >> 16 & 0xffu) * participants >> 8;
            const unsigned step = 1 + ((bits >> 24 & 0x7fu) * (participants - 1) >> 7);
            const unsigned other = (one + step) % participants;
            if (bits >> 31)
                continue;
            const arf_bf16 large = float_bits(bits, 18, 3);
            if ((unsigned)participant == one)
                row[i + e] = large;
            else if ((unsigned)participant == other)
                row[i + e] = large ^ 0x8000u;
        }
    }
}

/* The same for the slots of one token: rows 1 to opposed_rows() come in pairs whose large elements
 * cancel when both have one weight. The others have none. */
static int64_t opposed_rows(const arf_trial_data *data)
{
    const int64_t pool = data->routed_rows - 2;
    if (pool < 4 || data->shape.top_k < 2)
        return 0;
    return pool < 16 ? 2 : pool / 8 / 2 * 2;
}

static void oppose_routed(const arf_trial_data *data, int rank, int64_t index, arf_bf16 *row)
{
    const uint64_t key = key_of(data, PAIR, rank, (index - 1) / 2);
    const unsigned sign = (index - 1) % 2 ? 0x8000u : 0u;
    for (int i = 0; i < data->shape.hidden_size; i += 4) {
        const uint64_t bits = draw(key, (uint64_t)i);
        for (int e = 0; e < 4; e++)
            if (bits >> 16 * e & 0x400u)
                row[i + e] = float_bits((unsigned)(bits >> 16 * e & 0xffffu), 18, 3) ^ sign;
    }
}

/* ---- adversarial rows ------------------------------------------------------------------------ */

/* What all of a row is about. The seed shifts it, so that small M see all of them, too. */
enum row_theme { FINITE, TINY, NOT_FINITE, LARGE, PEAK, ROW_THEMES };

static enum row_theme theme_of(const arf_trial_data *data, int64_t token)
{
    return (enum row_theme)(((uint64_t)token + data->seed) % ROW_THEMES);
}

/* The packs of a finite row take turns; `turn` and `rank` say whose. */
static void finite_pack(uint64_t key, uint64_t turn, int rank, arf_bf16 *pack)
{
    /* 2^24 + 1 is lost, -2^24 + 1 is not: the order of ranks decides. */
    static const arf_bf16 cancelling[4] = {0x4b80, 0x3f80, 0xcb80, 0x3f80};
    const uint64_t low = draw(key, 2 * turn), high = draw(key, 2 * turn + 1);
    for (int i = 0; i < ARF_PACK; i++) {
        const unsigned bits = (unsigned)((i < 4 ? low : high) >> 16 * (i % 4) & 0xffffu);
        switch (turn % 4) {
        case 0: /* as random data */
            pack[i] = float_bits(bits, -8, 15);
            break;
        case 1: /* the sentinel as data */
            pack[i] = ARF_SENTINEL;
            break;
        case 2:
            pack[i] = cancelling[((unsigned)rank + turn / 4 + (unsigned)i) % 4];
            break;
        default: /* 256 to 510 plus a few ones: sums half way between two bf16 values */
            pack[i] = (arf_bf16)(rank == 0 ? 0x4380u | (bits & 0x7fu) : bits & 1u ? 0x3f80u : 0u);
            break;
        }
    }
}

/*
 * Beside a peak of 2^12, whose square is 2^24: packs of squares below 1, each lost when added to it
 * alone, but not when they are summed first. That is as far apart as two orders of a sum of squares
 * can be, and still only a few norms in a hundred thousand show it.
 */
static arf_bf16 peak_value(int rank, unsigned bits)
{
    return rank == 0 ? (arf_bf16)(0x3e80u | (bits & 0x803fu))  /* 0.25 to 0.375 */
                     : (arf_bf16)(0x3880u | (bits & 0x803fu)); /* far below that */
}

static void adversarial_row(uint64_t key, enum row_theme theme, uint64_t turn, int rank, int hidden,
                            arf_bf16 *row)
{
    for (int at = 0; at < hidden; at += ARF_PACK) {
        const uint64_t pack = (uint64_t)at / ARF_PACK;
        finite_pack(key, turn + pack, rank, row + at);
        for (int i = 0; i < ARF_PACK; i++) {
            const uint64_t bits = draw(~key, (uint64_t)(at + i));
            arf_bf16 *value = &row[at + i];
            if (theme == PEAK)
                *value = peak_value(rank, (unsigned)(bits & 0xffffu));
            else if (theme == TINY) /* 0x8001, -0.0 and their like; a quarter are any subnormal */
                *value = (arf_bf16)((bits & 0x8000u) |
                                    (bits & 0x30000u ? bits & 1u : bits >> 40 & 0x7fu));
            else if (theme == LARGE && pack % 2 == 0) /* sums beyond the largest number */
                *value = (arf_bf16)(0x7f00u | (bits & 0x807fu));
            else if (theme == NOT_FINITE && bits % 61 == 0) /* NaN of any sign and payload */
                *value = (arf_bf16)(0x7f80u | (bits >> 16 & 0x807fu) | 1u);
            else if (theme == NOT_FINITE && bits % 61 == 1) /* Inf, also one against another */
                *value = (arf_bf16)(0x7f80u | (bits >> 16 & 0x8000u));
        }
    }
    if (theme == PEAK && rank == 0)
        row[turn % (uint64_t)hidden] = 0x4580; /* 2^12 */
}

/* ---- rows ------------------------------------------------------------------------------------ */

static arf_bf16 power_of_two(int exponent)
{
    return (arf_bf16)((127 + exponent) << 7);
}

static void token_row(const arf_trial_data *data, enum tensor tensor, int rank, int64_t token,
                      arf_bf16 *row)
{
    const uint64_t key = key_of(data, tensor, rank, token);
    const int hidden = data->shape.hidden_size;
    if (data->kind == ARF_TRIAL_ADVERSARIAL)
        adversarial_row(key, theme_of(data, token), (uint64_t)token, rank, hidden, row);
    else
        mixed_row(key, hidden, row);
    if (data->kind == ARF_TRIAL_RANDOM)
        oppose(data, token, tensor == RESIDUAL ? data->shape.tp_size : rank, row);
}

void arf_trial_input(const arf_trial_data *data, int rank, int64_t token, arf_bf16 *row)
{
    if (data->kind == ARF_TRIAL_COUNT_RANKS)
        fill(row, data->shape.hidden_size, power_of_two(rank));
    else
        token_row(data, INPUT, rank, token, row);
}

/* Counting ranks, a finalize adds up to 2^rank, too: half of it here if there is a shared expert,
 * and the rest over the slots (see arf_trial_slots). */
void arf_trial_shared(const arf_trial_data *data, int rank, int64_t token, arf_bf16 *row)
{
    if (data->kind == ARF_TRIAL_COUNT_RANKS)
        fill(row, data->shape.hidden_size, power_of_two(rank - 1));
    else
        token_row(data, SHARED, rank, token, row);
}

void arf_trial_routed(const arf_trial_data *data, int rank, int64_t index, arf_bf16 *row)
{
    const int hidden = data->shape.hidden_size;
    const uint64_t key = key_of(data, ROUTED, rank, index);
    if (index <= 0 || index >= data->routed_rows - 1) {
        fill(row, hidden, 0xffc1);
    } else if (data->kind == ARF_TRIAL_COUNT_RANKS) {
        fill(row, hidden, power_of_two(rank));
    } else if (data->kind == ARF_TRIAL_ADVERSARIAL) {
        /* Few rows of NaN or of large values: a token gathers R * K of them. */
        const uint64_t lot = draw(key, 0) % 512;
        const enum row_theme theme = lot == 0 || index == data->routed_rows - 2 ? NOT_FINITE
                                     : lot == 1                                 ? LARGE
                                     : lot < 64                                 ? TINY
                                                                                : FINITE;
        adversarial_row(key, theme, (uint64_t)index, rank, hidden, row);
    } else {
        mixed_row(key, hidden, row);
        if (index <= opposed_rows(data))
            oppose_routed(data, rank, index, row);
    }
}

void arf_trial_residual(const arf_trial_data *data, int64_t token, arf_bf16 *row)
{
    if (data->kind == ARF_TRIAL_COUNT_RANKS)
        fill(row, data->shape.hidden_size, 0);
    else
        token_row(data, RESIDUAL, 1, token, row);
}

void arf_trial_gamma(const arf_trial_data *data, arf_bf16 *row)
{
    if (data->kind == ARF_TRIAL_COUNT_RANKS)
        fill(row, data->shape.hidden_size, 0x3f80);
    else
        mixed_row(key_of(data, GAMMA, 0, 0), data->shape.hidden_size, row);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* One of the rows first to last. */
static int32_t row_among(int64_t first, int64_t last, uint64_t bits)
{
    return (int32_t)(first + (int64_t)(bits % (uint64_t)(last - first + 1)));
}

/* Weights 1/2, 1/4, ... whose sum is 1, or 1/2 beside a shared expert: exact in any float. */
static void counting_slots(const arf_trial_data *data, uint64_t key, int32_t *indices,
                           float *weights)
{
    const int shift = data->shape.shared_expert == ARF_ON ? 1 : 0, top_k = data->shape.top_k;
    for (int k = 0; k < top_k; k++) {
        const int step = k + 1 < top_k ? k + 1 : k;
        indices[k] = row_among(1, data->routed_rows - 2, draw(key, (uint64_t)k) >> 24);
        weights[k] = ldexpf(1.0f, -(step + shift));
    }
}

/* Weights in [0, 1), a slot in 16 dropped; and two opposed rows with one weight, if there are any,
 * which no other slot names: their large elements would drown the small ones. */
static void random_slots(const arf_trial_data *data, uint64_t key, int32_t *indices, float *weights)
{
    const int64_t opposed = opposed_rows(data), last = data->routed_rows - 2;
    const uint64_t top_k = (uint64_t)data->shape.top_k, lot = draw(key, 0);
    for (uint64_t k = 0; k < top_k; k++) {
        const uint64_t bits = draw(key, 1 + k);
        weights[k] = (float)(bits & 0xffffffu) * 0x1p-24f;
        indices[k] = bits >> 60 == 0 ? -1 : row_among(opposed + 1, last, bits >> 24);
    }
    if (opposed > 0) {
        const uint64_t one = lot % top_k, other = (one + 1 + (lot >> 8) % (top_k - 1)) % top_k;
        indices[one] = 2 * row_among(0, opposed / 2 - 1, lot >> 16) + 1;
        indices[other] = indices[one] + 1;
        weights[other] = weights[one];
    }
}

static arf_bf16 adversarial_weight(enum row_theme theme, uint64_t bits)
{
    if (theme == TINY) /* products below the least normal number */
        return (arf_bf16)((bits & 0x83ffu) | 0x0080u);
    if (theme == PEAK) /* leaves the peak alone */
        return (arf_bf16)((bits & 0x807fu) | 0x2180u);
    /* 0.125 to 2, both signs; or 0, which does not drop the slot */
    return (arf_bf16)(bits >> 32 & 15u ? (bits & 0x81ffu) | 0x3e00u : 0u);
}

/* Some tokens have all slots dropped, or one row in all of them; in a few, weight 0 meets NaN and
 * Inf; the others have half of their slots. */
static void adversarial_slots(const arf_trial_data *data, int64_t token, uint64_t key,
                              int32_t *indices, arf_bf16 *weights)
{
    const uint64_t lot = draw(key, 0) % 32;
    const bool zero_weight = lot == 0, all_dropped = lot >= 1 && lot < 5;
    const bool one_row = lot >= 5 && lot < 9, half_dropped = lot >= 9;
    const int64_t last = data->routed_rows - 2; /* it is not finite */
    for (int k = 0; k < data->shape.top_k; k++) {
        const uint64_t bits = draw(key, 1 + (uint64_t)k);
        weights[k] = adversarial_weight(theme_of(data, token), bits);
        indices[k] = row_among(1, last > 1 ? last - 1 : last, bits >> 24);
        if (all_dropped || (half_dropped && bits >> 20 & 1u))
            indices[k] = -1;
        else if (one_row)
            indices[k] = indices[0];
    }
    if (zero_weight) {
        const int64_t k = token % data->shape.top_k;
        indices[k] = (int32_t)last;
        weights[k] = 0;
    }
}

void arf_trial_slots(const arf_trial_data *data, int rank, int64_t token, int32_t *indices,
                     void *weights)
{
    const uint64_t key = key_of(data, SLOTS, rank, token);
    switch (data->kind) {
    case ARF_TRIAL_COUNT_RANKS:
        counting_slots(data, key, indices, weights);
        break;
    case ARF_TRIAL_ADVERSARIAL:
        adversarial_slots(data, token, key, indices, weights);
        break;
    default:
        random_slots(data, key, indices, weights);
        break;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

arf_trial_data arf_trial_data_of(const arf_shape *shape, int64_t tokens, arf_trial_kind kind,
                                 uint64_t seed)
{
    const int64_t slots = tokens * shape->top_k, modest = 4 * tokens;
    const int64_t pool = slots < modest ? slots : modest;
    arf_trial_data data = {
        .shape = *shape,
        .kind = kind,
        .seed = seed,
        .routed_rows = (pool > 0 ? pool : 1) + 2,
        .weights_type = kind == ARF_TRIAL_ADVERSARIAL ? ARFUSE_WEIGHTS_BF16 : ARFUSE_WEIGHTS_FP32,
        .epsilon = kind == ARF_TRIAL_ADVERSARIAL ? 1e-5f : 1e-6f,
        .weight_bias = kind == ARF_TRIAL_ADVERSARIAL ? 1.0f : 0.0f,
        .routed_scale = kind == ARF_TRIAL_RANDOM ? 2.5f : 1.0f,
    };
    return data;
}

const char *arf_trial_kind_name(arf_trial_kind kind)
{
    static const char *const name[ARF_TRIAL_KINDS] = {"random", "adversarial", "count-ranks"};
    return name[kind];
}
