/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/costs.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* Turns are shorter than what a core gives other work before it comes back. */
enum { CHOICES = 1 << 14, TURNS = 256, MIX = 4096 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The fastest of some turns: other work on the core is no cost of a choice. */
static double choose(const arf_routes *routes, int64_t most)
{
    static int64_t tokens[MIX];
    double best = INFINITY;
    volatile int sink = 0;
    for (int64_t i = 0; i < MIX; i++)
        tokens[i] = 1 + (i * 7919) % most;
    for (int turn = 0; turn < TURNS; turn++) {
        const double start = now_ns();
        for (int i = 0; i < CHOICES; i++)
            sink += arf_route_of(routes, tokens[i % MIX]);
        best = fmin(best, (now_ns() - start) / CHOICES);
    }
    return best;
}

arfuse_status costs_measure(arf_device *device, const arf_shape *shape,
                            const arf_routes routes[ARF_PATTERNS], const char *profile,
                            int64_t most, host_costs *costs, arf_error *error)
{
    const bool alone = device->team->bootstrap.size == 1;
    *costs = (host_costs){
        .launch_ratio = NAN, .launch_us = NAN, .bare_us = NAN, .create_ms = NAN, .compile_s = NAN};
    costs->route_ns =
        fmax(choose(&routes[ARF_ALLREDUCE], most), choose(&routes[ARF_FINALIZE], most));
#ifdef ARF_CUDA
    if (device->ops == &arf_cuda_device && alone)
        return costs_on_cuda(device, shape, routes, profile, most, costs, error);
#endif
    (void)shape, (void)profile, (void)error;
    snprintf(costs->why, sizeof costs->why, "%s",
             alone ? "the device launches and compiles nothing"
                   : "measured with one process alone");
    return ARFUSE_OK;
}
