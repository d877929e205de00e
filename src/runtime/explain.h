/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARF_RUNTIME_EXPLAIN_H
#define ARF_RUNTIME_EXPLAIN_H

#include "runtime/workspace.h"

/* The effective map of a pattern on one line: "allreduce: ll to 12, bt to 64, unfused beyond
 * (FILE)". */
void arf_map_text(const arfuse_workspace *workspace, arf_pattern pattern, char *text, size_t size);

#endif
