/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/copy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/interval.h"

#define MIB 1048576.0
static const double gpu_sizes[COPY_SIZES] = {8, 16, 32, 48, 64, 96, 128, 256, 512, 1024};
static const double host_sizes[] = {1, 8, 64};
#define HOST_SIZES ((int)(sizeof host_sizes / sizeof host_sizes[0]))

enum { HOST_TURNS = 5 };

static arfuse_status copy_speed_host(const arf_device *device, size_t bytes, double *speed,
                                     arf_error *error)
{
    double turn[HOST_TURNS];
    char *memory = calloc(1, bytes);
    if (memory == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a copy of %zu bytes", bytes);
    for (int i = 0; i < HOST_TURNS; i++) {
        const double start = device->ops->now(device);
        memcpy(memory, memory + bytes / 2, bytes / 2);
        __asm__ volatile("" : : "r"(memory) : "memory"); /* every copy is wanted */
        turn[i] = (double)bytes / ((device->ops->now(device) - start) * 1e6);
    }
    free(memory);
    *speed = arf_median(turn, HOST_TURNS);
    return ARFUSE_OK;
}

static arfuse_status speed_here(const arf_tuner *tuner, size_t bytes, double *speed,
                                arf_error *error)
{
#ifdef ARF_CUDA
    if (tuner->device->ops == &arf_cuda_device)
        return copy_speed_cuda(tuner->device, bytes, speed, error);
#endif
    return copy_speed_host(tuner->device, bytes, speed, error);
}

/* `bytes` in the memory of one GPU, by all processes that share it. */
static arfuse_status measure_size(const arf_tuner *tuner, double bytes, int gpus, double *speed,
                                  arf_error *error)
{
    double all[ARF_MAX_RANKS], own = 0;
    const int processes = tuner->team.bootstrap.size;
    const size_t share = (size_t)(bytes * gpus / processes) / 64 * 64;
    arfuse_status status = arf_team_barrier(&tuner->team, error);
    if (status == ARFUSE_OK)
        status = speed_here(tuner, share, &own, error);
    ARF_TRY(arf_team_vote(&tuner->team, status, error));
    ARF_TRY(arf_team_allgather(&tuner->team, &own, all, sizeof own, error));
    *speed = 0;
    for (int p = 0; p < processes; p++)
        *speed += all[p] / gpus;
    return ARFUSE_OK;
}

arfuse_status copy_measure(const arf_tuner *tuner, copy_speeds *speeds, arf_error *error)
{
    *speeds = (copy_speeds){0};
    if (tuner->device->ops == &arf_model_device) {
        snprintf(speeds->why, sizeof speeds->why, "the model copies nothing");
        return ARFUSE_OK;
    }
    const bool host = tuner->device->ops == &arf_host_device;
    const int here = host ? tuner->team.tp_size : tuner->key.ranks_per_gpu;
    for (int i = 0; i < (host ? HOST_SIZES : COPY_SIZES); i++) {
        speeds->bytes[i] = (host ? host_sizes : gpu_sizes)[i] * MIB;
        ARF_TRY(measure_size(tuner, speeds->bytes[i], tuner->team.tp_size / here, &speeds->speed[i],
                             error));
        speeds->count++;
    }
    return ARFUSE_OK;
}

double copy_us(const copy_speeds *speeds, double bytes)
{
    const int last = speeds->count - 1;
    if (speeds->count == 0)
        return NAN;
    if (bytes <= speeds->bytes[0])
        return bytes / speeds->speed[0];
    for (int i = 0; i < last; i++) {
        if (bytes > speeds->bytes[i + 1])
            continue;
        const double part =
            log(bytes / speeds->bytes[i]) / log(speeds->bytes[i + 1] / speeds->bytes[i]);
        return bytes / (speeds->speed[i] + part * (speeds->speed[i + 1] - speeds->speed[i]));
    }
    return bytes / speeds->speed[last];
}
