/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs hold the space that their calls use: each retains a user object,
 * which the driver destroys with the graph and all that was instantiated from it.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "device/cuda/cuda_device.h"

/* Outlives a space that is destroyed all the same: the last one to hold it frees it. */
struct arf_graph_holds {
    atomic_int holders; /* the space, and each graph */
};

arf_graph_holds *arf_graph_holds_new(void)
{
    arf_graph_holds *holds = malloc(sizeof *holds);
    if (holds != NULL)
        atomic_init(&holds->holders, 1);
    return holds;
}

/* Also the destructor of the user objects, on a thread of the driver: no CUDA call is allowed. */
static void let_go(void *memory)
{
    arf_graph_holds *holds = memory;
    if (atomic_fetch_sub_explicit(&holds->holders, 1, memory_order_acq_rel) == 1)
        free(holds);
}

void arf_graph_holds_release(arf_graph_holds *holds)
{
    if (holds != NULL)
        let_go(holds);
}

arfuse_status arf_cuda_hold(arf_cuda_space *space, CUstream stream, arf_error *error)
{
    const arf_driver *driver = &((const arf_cuda *)space->base.device)->driver;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    cuuint64_t capture = 0;
    /* An error here (the legacy stream while another one is captured) comes again from the launch,
     * which says more about it. */
    if (driver->capture_info(stream, &capturing, &capture, &graph, NULL, NULL) != CUDA_SUCCESS ||
        capturing != CU_STREAM_CAPTURE_STATUS_ACTIVE || capture == space->capture)
        return ARFUSE_OK;
    CUuserObject object = NULL;
    atomic_fetch_add_explicit(&space->holds->holders, 1, memory_order_relaxed);
    arfuse_status status = ARF_CU(driver, error, cuUserObjectCreate, &object, space->holds, let_go,
                                  1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (status != ARFUSE_OK) {
        let_go(space->holds);
        return status;
    }
    status =
        ARF_CU(driver, error, cuGraphRetainUserObject, graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (status != ARFUSE_OK)
        driver->cuUserObjectRelease(object, 1);
    else
        space->capture = capture; /* once a capture is enough */
    return status;
}

/* The driver destroys user objects a little later, on a thread of its own. */
#define PATIENCE_MS 200

int arf_cuda_graphs(const arf_space *base)
{
    const arf_graph_holds *holds = ((const arf_cuda_space *)base)->holds;
    int graphs = 0;
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        graphs = atomic_load_explicit(&holds->holders, memory_order_acquire) - 1;
        if (graphs == 0)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return graphs;
}
