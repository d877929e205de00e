/* SPDX-License-Identifier: Apache-2.0 */
/* Which process hosts which ranks of the team: R ranks over P processes, in order. */
#ifndef ARF_TUNE_PLACEMENT_H
#define ARF_TUNE_PLACEMENT_H

#include "base/error.h"
#include "rules/words.h"

typedef struct arf_placement {
    int tp_size, processes;
    int ranks_of[ARF_MAX_RANKS]; /* by process; the first ones host one more where R % P != 0 */
} arf_placement;

/* `tp_size` 0: one rank a process. ARFUSE_USAGE when some process would host no rank. */
arfuse_status arf_place(int tp_size, int processes, arf_placement *placement, arf_error *error);

/* "8 ranks on 8 processes", "8 ranks on 1 process, 8 each", "8 ranks on 3 processes: 3, 3, 2". */
void arf_placement_text(const arf_placement *placement, char *text, size_t size);

#endif
