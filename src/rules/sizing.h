/* SPDX-License-Identifier: Apache-2.0 */
/* Workspace memory per rank, exact in 64 bits. Every protocol's formula stands here and nowhere
 * else; devices lay their memory out by it. */
#ifndef ARF_RULES_SIZING_H
#define ARF_RULES_SIZING_H

#include "base/error.h"
#include "rules/words.h"

/* LL and BT rotate three generations (design section 4; rules.md section 6). */
#define ARF_GENERATIONS 3
/* HT has a counter for every shard of a row, of this many at most (knob `shards`). */
#define ARF_HT_MOST_SHARDS 64

/* Bytes of the receive buffers that peers write, for `capacity` tokens of one protocol. Fails with
 * ARFUSE_USAGE when the arguments are out of the reader's ranges; cannot overflow inside them. */
arfuse_status arf_mailbox_bytes(const arf_shape *shape, arf_protocol protocol, int64_t capacity,
                                int64_t *bytes, arf_error *error);

/* The capacity of one protocol: min(its last bound over both patterns, capacity); 0 when no route
 * of either pattern names it. */
int64_t arf_protocol_capacity(const arf_routes routes[ARF_PATTERNS], arf_protocol protocol,
                              int64_t capacity);

/* The public sets' documented formula (rules.md section 6), for reports and comparison. */
arfuse_status arf_published_bytes(const arf_shape *shape, arf_protocol protocol, int64_t capacity,
                                  int64_t *bytes, arf_error *error);

#endif
