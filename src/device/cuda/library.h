/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unfused path by NCCL.
 *
 *   fixed      grouped send and receive of token shards, the tree's sum and the residual by the
 *              shard's owner, an all-gather, the norm: the contract's bits
 *   library    ncclAllReduce, then residual and norm: NCCL's own order of sums, raced only where
 *              numerics of the library are asked for
 *
 * A shard is c = ceil(M / R) tokens in a row; rank r owns tokens r c .. r c + c - 1. NCCL takes one
 * rank a GPU and a process, so with one GPU only teams of one rank come here. It does not tell
 * which rank it waits for; library_watch.h bounds its waits.
 */
#ifndef ARF_DEVICE_CUDA_LIBRARY_H
#define ARF_DEVICE_CUDA_LIBRARY_H

#include "device/cuda/library_watch.h"
#include "device/cuda/nccl.h"
#include "device/cuda/recipe.h"
#include "kernels/arguments.h"

typedef struct arf_library {
    arf_nccl nccl;
    arf_nccl_comm comm; /* NULL: not in use */
    char why[256];      /* ... and why */
    arf_library_watch *watch;
    CUdeviceptr contributions, rows; /* [R][c][H] and [R c][H] bf16, c of the capacity */
} arf_library;

struct arf_cuda; /* cuda_device.h, which includes this */
struct arf_cuda_space;
struct arf_ready_plan;

/* Collective; votes. Sets device->library to NCCL's version and settings; ARFUSE_NOT_SUPPORTED says
 * why it cannot serve this device's team. */
arfuse_status arf_library_look(struct arf_cuda *device, arf_error *error);

/*
 * Collective; votes. Makes the communicator and runs each collective once, so that nothing is left
 * to set up on the launch path. Where it is not possible: ARFUSE_OK, comm NULL, `why` set on all.
 */
arfuse_status arf_library_create(struct arf_cuda_space *space, arf_error *error);
void arf_library_destroy(struct arf_cuda_space *space);

/* Whether the plan goes by the library here. */
bool arf_library_serves(const struct arf_cuda_space *space, const arf_plan *plan);

/* The kernels of such a plan; ARFUSE_NOT_SUPPORTED says why there is no library. */
arfuse_status arf_library_recipe(const struct arf_cuda_space *space, arf_pattern pattern,
                                 const arf_plan *plan, arf_recipe *recipe, arf_error *error);

/* All ranks meet on the stream: for teams without memory that all can write. */
arfuse_status arf_library_barrier(struct arf_cuda_space *space, CUstream stream, arf_error *error);

/* One call. *enqueued counts what is on the stream already. */
arfuse_status arf_library_enqueue(struct arf_cuda_space *space, const struct arf_ready_plan *plan,
                                  arf_call *call, arf_operand_table *table, int *enqueued,
                                  CUstream stream, arf_error *error);

#endif
