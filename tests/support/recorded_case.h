/* SPDX-License-Identifier: Apache-2.0 */
/* A workspace over the device that only writes down (recording_device.h), and its operands. */
#ifndef TESTS_SUPPORT_RECORDED_CASE_H
#define TESTS_SUPPORT_RECORDED_CASE_H

#include "runtime/workspace.h"

enum { RECORDED_HIDDEN = 64, RECORDED_TOP_K = 2, RECORDED_MOST = 160 };
extern uint16_t recorded_tensor[6][RECORDED_MOST * RECORDED_HIDDEN];
extern int32_t recorded_indices[RECORDED_MOST * RECORDED_TOP_K];

/* Capacity 48, sites "attn_out" and "moe_out", default routes. */
arfuse_options recorded_options(void);
arfuse_workspace *recorded_open(const arfuse_options *options);
/* A new recording, and a workspace of these options. */
arfuse_workspace *recorded_usual(void);
/* Of either pattern, for RECORDED_MOST tokens. */
arfuse_operands recorded_operands(void);

#endif
