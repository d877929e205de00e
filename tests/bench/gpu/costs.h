/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library costs the host: choosing a route, launching a call, making a workspace,
 * compiling a kernel. NaN where it has no meaning here, with `why`.
 */
#ifndef TESTS_BENCH_GPU_COSTS_H
#define TESTS_BENCH_GPU_COSTS_H

#include "device/device.h"

typedef struct host_costs {
    double route_ns; /* of one choice */
    /* The worst of some (pattern, M): a call through libarfuse over starting the same kernels with
     * the same grids, attributes and parameters, which are then at hand. */
    double launch_ratio, launch_us, bare_us;
    arf_pattern launch_pattern;
    int64_t launch_tokens;
    int launch_kernels;
    double create_ms; /* of a workspace, kernels cached, the GPU's context there */
    double compile_s; /* of the slowest kernel of the routes, into an empty cache */
    char compile_kernel[64];
    int compiled;
    char why[160]; /* of what has no meaning here; "" when all has */
} host_costs;

/* Collective. `profile`: the routes' file, NULL: default routes. `most`: tokens of a workspace. */
arfuse_status costs_measure(arf_device *device, const arf_shape *shape,
                            const arf_routes routes[ARF_PATTERNS], const char *profile,
                            int64_t most, host_costs *costs, arf_error *error);

#ifdef ARF_CUDA
/* One process that hosts all ranks. */
arfuse_status costs_on_cuda(const arf_device *device, const arf_shape *shape,
                            const arf_routes routes[ARF_PATTERNS], const char *profile,
                            int64_t most, host_costs *costs, arf_error *error);
#endif

#endif
