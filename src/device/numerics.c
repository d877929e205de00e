/* SPDX-License-Identifier: Apache-2.0 */
#include "device/numerics.h"

#include <fenv.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

/*
 * The tree, taken one term at a time: node[level] holds the finished left subtree of 2^level terms
 * while its right neighbour is being added up, as the set bits of `index` say. Equal to halving the
 * padded array over and over, without the array.
 */
#define TREE_LEVELS 31 /* an int counts the terms */

typedef struct tree {
    unsigned index; /* terms so far */
    float node[TREE_LEVELS];
} tree;

ARF_INLINE void tree_add(tree *t, float sum)
{
    int level = 0;
    for (; t->index >> level & 1u; level++)
        sum = t->node[level] + sum;
    t->node[level] = sum;
    t->index++;
}

ARF_INLINE float tree_total(const tree *t)
{
    unsigned count = t->index;
    if (count == 0)
        return 0.0f;
    if ((count & (count - 1)) == 0)
        return t->node[__builtin_ctz(count)];
    /* Not a power of two: the open right edge is closed with padding, level by level. */
    float sum = 0.0f;
    for (int level = 0; count >> level; level++)
        sum = count >> level & 1u ? t->node[level] + sum : sum + 0.0f;
    return sum;
}

float arf_tree_sum(const float *term, int count)
{
    tree t = {.index = 0};
    for (int i = 0; i < count; i++)
        tree_add(&t, term[i]);
    return tree_total(&t);
}

float arf_inverse_rms(float sum_of_squares, int hidden_size, float epsilon)
{
    float mean = sum_of_squares / (float)hidden_size;
    float inv = 1.0f / sqrtf(mean + epsilon);
    return inv != inv ? arf_float_of_bits(0x7fffffffu) : inv;
}

/* ---- rows ----------------------------------------------------------------------------------- */

void arf_slots_of(const arfuse_operands *operands, const arf_shape *shape, float routed_scale,
                  int64_t token, arf_slots *slots)
{
    const int64_t first = token * shape->top_k;
    slots->count = 0;
    for (int k = 0; k < shape->top_k; k++) {
        int32_t index = operands->indices[first + k];
        if (index < 0) /* dropped: skipped whole, its row does not exist */
            continue;
        float weight = operands->weights_type == ARFUSE_WEIGHTS_FP32
                           ? ((const float *)operands->weights)[first + k]
                           : arf_bf16_to_float(((const arf_bf16 *)operands->weights)[first + k]);
        slots->weight[slots->count] = weight * routed_scale;
        slots->row[slots->count] =
            (const arf_bf16 *)operands->routed + (int64_t)index * shape->hidden_size;
        slots->count++;
    }
}

/* Rows are walked by packs through local arrays, which cannot overlap an operand: that allows every
 * in-place use and lets the compiler use vectors. */
ARF_WITH_FMA
void arf_finalize_row(const arf_slots *slots, const arf_bf16 *shared, int first, int count,
                      arf_bf16 *contribution)
{
    for (int at = 0; at < count; at += ARF_PACK) {
        float sum[ARF_PACK] = {0.0f};
        for (int k = 0; k < slots->count; k++) {
            const arf_bf16 *row = slots->row[k] + first + at;
            const float weight = slots->weight[k];
            for (int i = 0; i < ARF_PACK; i++)
                sum[i] = fmaf(weight, arf_bf16_to_float(row[i]), sum[i]);
        }
        if (shared) {
            for (int i = 0; i < ARF_PACK; i++)
                sum[i] += arf_bf16_to_float(shared[first + at + i]);
        }
        arf_bf16 out[ARF_PACK];
        for (int i = 0; i < ARF_PACK; i++)
            out[i] = arf_contribution(arf_float_to_bf16(sum[i]));
        memcpy(contribution + at, out, sizeof out);
    }
}

void arf_contribution_row(const arf_bf16 *input, int count, arf_bf16 *contribution)
{
    for (int at = 0; at < count; at += ARF_PACK) {
        arf_bf16 out[ARF_PACK];
        for (int i = 0; i < ARF_PACK; i++)
            out[i] = arf_contribution(input[at + i]);
        memcpy(contribution + at, out, sizeof out);
    }
}

/* Half the ranks' sums of so many elements stay in the first-level cache. */
#define REDUCE_BLOCK 64

void arf_reduce_row(const arf_bf16 *const *from, int ranks, const arf_bf16 *residual, int count,
                    arf_bf16 *x)
{
    for (int at = 0; at < count; at += REDUCE_BLOCK) {
        const int n = count - at < REDUCE_BLOCK ? count - at : REDUCE_BLOCK;
        float sum[(ARF_MAX_RANKS + 1) / 2][REDUCE_BLOCK];
        for (int pair = 0; pair < ranks / 2; pair++) {
            const arf_bf16 *left = from[2 * pair] + at, *right = from[2 * pair + 1] + at;
            for (int i = 0; i < n; i++)
                sum[pair][i] = arf_bf16_to_float(left[i]) + arf_bf16_to_float(right[i]);
        }
        /* An odd last one would be added to padding. That changes nothing but -0.0, which a
         * contribution never is and a sum of others never becomes. */
        if (ranks % 2)
            for (int i = 0; i < n; i++)
                sum[ranks / 2][i] = arf_bf16_to_float(from[ranks - 1][at + i]);
        for (int left = (ranks + 1) / 2; left > 1; left = (left + 1) / 2) {
            for (int pair = 0; pair < left / 2; pair++)
                for (int i = 0; i < n; i++)
                    sum[pair][i] = sum[2 * pair][i] + sum[2 * pair + 1][i];
            if (left % 2)
                memcpy(sum[left / 2], sum[left - 1], sizeof sum[0]);
        }
        if (residual)
            for (int i = 0; i < n; i++)
                sum[0][i] += arf_bf16_to_float(residual[at + i]);
        for (int i = 0; i < n; i++)
            x[at + i] = arf_float_to_bf16(sum[0][i]);
    }
}

ARF_WITH_FMA
float arf_squares_row(const arf_bf16 *x, int hidden_size)
{
    tree t = {.index = 0};
    for (int at = 0; at < hidden_size; at += ARF_PACK)
        tree_add(&t, arf_pack_squares(x + at));
    return tree_total(&t);
}

void arf_normalise_row(const arf_bf16 *x, float inv, const arf_bf16 *gamma, float weight_bias,
                       int count, arf_bf16 *norm)
{
    for (int at = 0; at < count; at += ARF_PACK) {
        arf_bf16 out[ARF_PACK];
        for (int i = 0; i < ARF_PACK; i++)
            out[i] = arf_normalised(x[at + i], inv, gamma[at + i], weight_bias);
        memcpy(norm + at, out, sizeof out);
    }
}

/* ---- environment ---------------------------------------------------------------------------- */

#if defined(__SSE__)
#define PINNED 0x1f80u /* traps masked, to nearest, FTZ (bit 15) and DAZ (bit 6) off */
static uint64_t control_read(void)
{
    return _mm_getcsr();
}
static void control_write(uint64_t word)
{
    _mm_setcsr((unsigned)word);
}
#elif defined(__aarch64__)
#define PINNED 0u /* to nearest, FZ (bit 24), FZ16, FIZ and traps off */
static uint64_t control_read(void)
{
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
static void control_write(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory");
}
#else
#define PINNED 0u /* no flush-to-zero known on this machine: rounding alone */
static uint64_t control_read(void)
{
    return 0;
}
static void control_write(uint64_t word)
{
    (void)word;
}
#endif

arf_float_state arf_float_pin(void)
{
    arf_float_state state = {.saved = control_read(), .rounding = fegetround()};
    fesetround(FE_TONEAREST);
    control_write(PINNED);
    return state;
}

void arf_float_restore(arf_float_state state)
{
    fesetround(state.rounding);
    control_write(state.saved);
}
