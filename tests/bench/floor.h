/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that a call can cost: the bytes that its protocol must move through the memory of one
 * GPU (design.md, section 4), over what a plain copy of as many bytes reaches.
 */
#ifndef TESTS_BENCH_FLOOR_H
#define TESTS_BENCH_FLOOR_H

#include "rules/words.h"

/* A row of every token on each of `here` ranks. */
double floor_row_bytes(const arf_shape *shape, int here, int64_t tokens);

/*
 * Bytes read and written in the memory of one GPU that hosts `here` of the shape's ranks; of one
 * rank alone with here = 1. `behind` is the allreduce protocol after a separate finalize, and is
 * not looked at otherwise. Mailboxes rotate through three generations, so these bytes are also what
 * calls in a row go through before they come back to a place: the working set of the floor.
 */
double floor_bytes(const arf_shape *shape, int here, arf_pattern pattern, arf_protocol protocol,
                   arf_protocol behind, int64_t tokens);

/* Bytes that one GPU sends to the others, unicast, in the same terms. */
double floor_link_bytes(const arf_shape *shape, int here, arf_protocol protocol,
                        arf_protocol behind, int64_t tokens);

#endif
