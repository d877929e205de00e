/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/floor.h"

/* In rows of a token; `a` is what a rank reads of its contribution. */
static double rows_of(double a, double ranks, arf_protocol protocol)
{
    switch (protocol) {
    case ARF_LL:
        return a + 3 * ranks + 3;
    case ARF_BT:
        return a + 8 + 1 / ranks;
    case ARF_HT:
        return a + 7 + 1 / ranks;
    default: /* unfused: a finalized contribution is written, and read again */
        return a > 1 ? a + 13 : 12;
    }
}

double floor_row_bytes(const arf_shape *shape, int here, int64_t tokens)
{
    return here * (double)tokens * 2.0 * shape->hidden_size;
}

double floor_bytes(const arf_shape *shape, int here, arf_pattern pattern, arf_protocol protocol,
                   arf_protocol behind, int64_t tokens)
{
    const double ranks = shape->tp_size;
    const double a = pattern == ARF_FINALIZE ? shape->top_k + 1 : 1;
    double rows = rows_of(a, ranks, protocol);
    if (protocol == ARF_SEPARATE) /* what unfused does anyway; the others plus a row out and in */
        rows = rows_of(a, ranks, behind) + (behind == ARF_UNFUSED ? 0 : 2);
    return rows * floor_row_bytes(shape, here, tokens);
}

double floor_link_bytes(const arf_shape *shape, int here, arf_protocol protocol,
                        arf_protocol behind, int64_t tokens)
{
    const double row = (shape->tp_size - here) * floor_row_bytes(shape, here, tokens);
    if ((protocol == ARF_SEPARATE ? behind : protocol) == ARF_LL)
        return row;                  /* everything to everybody */
    return 2 * row / shape->tp_size; /* a share to its owner, the owner's rows to everybody */
}
