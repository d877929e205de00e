/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARF_RUNTIME_EXPLAIN_H
#define ARF_RUNTIME_EXPLAIN_H

#include "runtime/workspace.h"

/* The effective map of a pattern on one line: "allreduce: ll to 12, bt to 64, unfused beyond
 * (FILE)". */
void arf_map_text(const arfuse_workspace *workspace, arf_pattern pattern, char *text, size_t size);

/* What a profiler shows of a call: "allreduce attn_out M=17 ll, route 1 of 4"; pieces of a cut call
 * are one range. On the launch path: no allocation. */
#define ARF_RANGE_TEXT 128
void arf_range_text(const arfuse_workspace *workspace, arf_pattern pattern, const arfuse_call *call,
                    const arf_service *service, char text[ARF_RANGE_TEXT]);

#endif
