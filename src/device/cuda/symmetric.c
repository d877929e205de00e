/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/symmetric.h"

arfuse_status arf_symmetric_possible(const arf_team *team, arf_error *error)
{
    if (team->local_ranks == team->tp_size)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                    "a team of %d ranks over %d processes: the cuda device cannot map memory "
                    "between processes yet; host all ranks in one process that shares its GPU "
                    "(local ranks), or use --device host",
                    team->tp_size, team->bootstrap.size);
}

arfuse_status arf_symmetric_create(const arf_driver *driver, const arf_team *team, uint64_t bytes,
                                   arf_symmetric *memory, arf_error *error)
{
    *memory = (arf_symmetric){.bytes = bytes};
    ARF_TRY(arf_symmetric_possible(team, error));
    for (int r = 0; r < team->local_ranks; r++) {
        CUdeviceptr *segment = &memory->peer[team->first_rank + r];
        arfuse_status status = ARF_CU(driver, error, cuMemAlloc, segment, bytes);
        if (status != ARFUSE_OK) {
            *segment = 0;
            arf_error_prefix(error, "segment of rank %d, %llu bytes", team->first_rank + r,
                             (unsigned long long)bytes);
            arf_symmetric_destroy(driver, team, memory);
            return status;
        }
    }
    return ARFUSE_OK;
}

void arf_symmetric_destroy(const arf_driver *driver, const arf_team *team, arf_symmetric *memory)
{
    for (int r = team->first_rank; r < team->first_rank + team->local_ranks; r++) {
        if (memory->peer[r] != 0)
            driver->cuMemFree(memory->peer[r]);
        memory->peer[r] = 0;
    }
}
