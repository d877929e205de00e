/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/sizing.h"

#include <stddef.h>

static arfuse_status check_range(const char *what, int64_t value, int64_t low, int64_t high,
                                 arf_error *error)
{
    if (value >= low && value <= high)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_USAGE, "%s %lld: expected %lld to %lld", what, (long long)value,
                    (long long)low, (long long)high);
}

#define COUNTER_BYTES 8

static int64_t most_shards(const arf_shape *shape)
{
    const int packs = shape->hidden_size / 8;
    return packs < ARF_HT_MOST_SHARDS ? packs : ARF_HT_MOST_SHARDS;
}

/* Inside these ranges the largest product is 6 * 72 * 2^20 * 65536 < 2^45. */
static arfuse_status check_arguments(const arf_shape *shape, int64_t capacity, arf_error *error)
{
    ARF_TRY(check_range("tp_size", shape->tp_size, 1, ARF_MAX_RANKS, error));
    ARF_TRY(check_range("hidden_size", shape->hidden_size, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN, error));
    return check_range("capacity", capacity, 0, ARF_MAX_TOKENS, error);
}

arfuse_status arf_mailbox_bytes(const arf_shape *shape, arf_protocol protocol, int64_t capacity,
                                int64_t *bytes, arf_error *error)
{
    ARF_TRY(check_arguments(shape, capacity, error));
    int64_t ranks = shape->tp_size;
    int64_t row = (int64_t)shape->hidden_size * 2; /* bf16 */
    int64_t owned = (capacity + ranks - 1) / ranks;
    /* A slot for every source and every token that the rank may own. Slices of every token take
     * capacity x (row / R) x R sources, which is no more. */
    int64_t contributions = owned * ranks * row;
    int64_t rows = capacity * row; /* the summed rows that the owners send back */
    switch (protocol) {
    case ARF_LL:
        *bytes = ARF_GENERATIONS * capacity * ranks * row;
        return ARFUSE_OK;
    case ARF_BT:
        *bytes = ARF_GENERATIONS * (contributions + rows);
        return ARFUSE_OK;
    case ARF_HT:
    case ARF_UNFUSED:
        /* Counters say what has arrived, so one generation is enough: a rank starts its next call
         * only when it has all rows of this one, and a row comes only after its owner has read
         * every contribution. */
        *bytes = contributions + rows;
        /* HT counts by token: a word for every source of an owned one, and for every shard. */
        if (protocol == ARF_HT)
            *bytes += COUNTER_BYTES * (owned * ranks + capacity * most_shards(shape));
        return ARFUSE_OK;
    default: /* the finalize kernel of a separate route talks to nobody */
        *bytes = 0;
        return ARFUSE_OK;
    }
}

int64_t arf_protocol_capacity(const arf_routes routes[ARF_PATTERNS], arf_protocol protocol,
                              int64_t capacity)
{
    int64_t last = 0;
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (int i = 0; i < routes[pattern].count; i++) {
            const arf_route *route = &routes[pattern].route[i];
            if (route->plan.protocol == protocol && route->max_tokens > last)
                last = route->max_tokens;
        }
    return last < capacity ? last : capacity;
}

arfuse_status arf_published_bytes(const arf_shape *shape, arf_protocol protocol, int64_t capacity,
                                  int64_t *bytes, arf_error *error)
{
    ARF_TRY(check_arguments(shape, capacity, error));
    int64_t ranks = shape->tp_size, hidden = shape->hidden_size;
    int64_t owned = (capacity + ranks - 1) / ranks;
    switch (protocol) {
    case ARF_LL:
        *bytes = 6 * ranks * capacity * hidden + 8;
        return ARFUSE_OK;
    case ARF_BT:
        *bytes = 6 * ranks * owned * hidden + 6 * capacity * hidden + 8 + 8 * ranks;
        return ARFUSE_OK;
    case ARF_HT:
        *bytes = 4 * capacity * hidden + 2 * (4 * owned + 4 * owned * ranks) + 16 * ranks;
        return ARFUSE_OK;
    default:
        return arf_fail(error, ARFUSE_USAGE, "no public kernel set documents the memory of \"%s\"",
                        arf_protocol_name(protocol));
    }
}
