/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The busy word of a GPU (design section 4): kernels/order.cu before and behind each call of the
 * workspaces that ask for it says there who is in a call, so that calls which overlap on the GPU,
 * by two streams or two graphs, are named. device/order.h watches the order in which the host
 * enqueues; this watches what then runs.
 *
 * One word a (process, GPU): processes that share a GPU have one each.
 */
#ifndef ARF_DEVICE_CUDA_BUSY_H
#define ARF_DEVICE_CUDA_BUSY_H

#include "device/device.h"
#include "kernels/arguments.h"

typedef struct arf_busy arf_busy;
struct arf_cuda_space;

/* Local; the context is current. `label` names the space in messages. */
arfuse_status arf_busy_join(const struct arf_cuda_space *space, arf_busy **busy, uint32_t *number,
                            arf_error *error);
/* Accepts NULL. No kernel of the space may run any more. */
void arf_busy_leave(const struct arf_cuda_space *space, arf_busy *busy);

/* The kernel's argument. */
arf_order_mark arf_busy_mark(const arf_busy *busy, uint32_t number, bool enter);

/* ARFUSE_IN_USE names both, when this one overlapped another. One host read while the rule is
 * kept; NULL: ARFUSE_OK. */
arfuse_status arf_busy_state(const arf_busy *busy, uint32_t number, arf_error *error);

#endif
