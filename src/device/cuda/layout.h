/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things stand in the segment that every rank has and all peers map
 * (kernels/arguments.h, MEMORY): a control block, then the mailboxes. Pure
 * arithmetic; the sizes are those of rules/sizing.h.
 */
#ifndef ARF_DEVICE_CUDA_LAYOUT_H
#define ARF_DEVICE_CUDA_LAYOUT_H

#include "device/device.h"
#include "kernels/arguments.h"

/* A range of the segment; `bytes` 0: not used. */
typedef struct arf_range {
    uint64_t offset, bytes;
} arf_range;

typedef struct arf_layout {
    arf_range ll, bt_contribution, bt_row, unfused_contribution, unfused_row;
    arf_range ht_contribution, ht_row;
    arf_range ht_ready, ht_arrived; /* counters: zero before first use */
    uint64_t segment_bytes;         /* of one rank */
    uint64_t scratch_bytes; /* of one local rank's finalized contribution; not seen by peers */
} arf_layout;

/* Fails when capacities are out of range, or disagree with rules/sizing.h. */
arfuse_status arf_layout_make(const arf_space_spec *spec, arf_layout *layout, arf_error *error);

/* Writes offsets and capacities into the view that kernels get. */
void arf_layout_view(const arf_layout *layout, const arf_space_spec *spec, arf_team_view *view);

#endif
