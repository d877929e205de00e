/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/failures.h"

#include <stdio.h>
#include <string.h>

static CUresult broken(void)
{
    return CUDA_ERROR_UNKNOWN;
}

/* A space is some MiB: one that leaks twenty times shows, what a driver keeps for itself does not.
 */
#define FLAT_BYTES ((size_t)32 << 20)
#define FAILS_WITHIN_SECONDS 10.0

/* Of the GPU, while no process makes or drops anything. */
static arfuse_status free_memory(peer *at, size_t *bytes, arf_error *error)
{
    size_t total;
    ARF_TRY(arf_team_barrier(&at->team, error));
    ARF_TRY(arf_cuda_enter(at->cuda, error));
    arfuse_status status = ARF_CU(&at->cuda->driver, error, cuMemGetInfo, bytes, &total);
    arf_cuda_leave(at->cuda);
    return arf_team_vote(&at->team, status, error);
}

static arfuse_status fail_once(peer *at, int which, bool victim, double *slowest, arf_error *error)
{
    arf_driver whole = at->cuda->driver, *driver = &at->cuda->driver;
    void **function[] = {
        (void **)&driver->cuMemGetAllocationGranularity,
        (void **)&driver->cuMemCreate,
        (void **)&driver->cuMemExportToShareableHandle,
        (void **)&driver->cuMemImportFromShareableHandle,
        (void **)&driver->cuMemAddressReserve,
        (void **)&driver->cuMemMap,
        (void **)&driver->cuMemSetAccess,
        (void **)&driver->cuMemcpyHtoD,
        (void **)&driver->cuMemcpyDtoH,
        (void **)&driver->cuMemsetD16,
    };
    arf_space *space = NULL;
    arf_space_spec spec = peer_spec(at->team.tp_size, 5);
    arf_error refusal = ARF_ERROR_INIT;
    const double start = gpu_seconds();
    if (victim)
        *function[which] = (void *)broken;
    arfuse_status status = arf_cuda_space_create(&at->cuda->base, &spec, &space, &refusal);
    at->cuda->driver = whole;
    if (*slowest < gpu_seconds() - start)
        *slowest = gpu_seconds() - start;
    if (status == ARFUSE_OK) {
        arf_cuda_space_destroy(space);
        return arf_fail(error, ARFUSE_FAILURE, "failure %d changed nothing", which);
    }
    if (strstr(refusal.text, "(999)") == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "failure %d: the message is %s", which,
                        refusal.text);
    ARF_TRY(arf_cuda_space_create(&at->cuda->base, &spec, &space, error));
    arf_cuda_space_destroy(space);
    return ARFUSE_OK;
}

arfuse_status peer_failures(peer *at, int *passed, char *text, size_t size, arf_error *error)
{
    size_t first = 0, last = 0;
    double slowest = 0;
    for (int i = 0; i < PEER_FAILURES; i++) {
        const bool victim = i / 10 == at->team.bootstrap.rank;
        ARF_TRY(arf_team_vote(&at->team, fail_once(at, i % 10, victim, &slowest, error), error));
        ++*passed;
        if (i == 1) /* the first ones make what a driver keeps */
            ARF_TRY(free_memory(at, &first, error));
    }
    ARF_TRY(free_memory(at, &last, error));
    snprintf(text, size, "the slowest took %.3f s; %zu MiB free after two of them, %zu at the end",
             slowest, first >> 20, last >> 20);
    const bool good = slowest <= FAILS_WITHIN_SECONDS && last + FLAT_BYTES >= first;
    return arf_team_vote(&at->team, good ? ARFUSE_OK : arf_fail(error, ARFUSE_FAILURE, "%s", text),
                         error);
}
