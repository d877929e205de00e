/* SPDX-License-Identifier: Apache-2.0 */
/* Not run on several GPUs yet; a stand-in for libcuda goes through all of it but the kernel. */
#ifdef ARF_CUDA

#include "bench/gpu/links.h"

#include <math.h>

#include "bench/gpu/inline_kernel.h"
#include "tune/interval.h"

/*
 * Each thread stores 16 bytes to one peer after the other, beginning behind its own rank, so that
 * no peer has all the others' first writes. Every sender has a part of its own in each segment.
 */
static const char write_text[] =
    "struct places { int4 *of[72]; };\n"
    "extern \"C\" __global__ void arf_write(places to, int peers, unsigned long long packs,\n"
    "                                     int turns)\n"
    "{\n"
    "    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;\n"
    "    const int4 value = make_int4(1, 2, 3, 4);\n"
    "    for (int turn = 0; turn < turns; turn++)\n"
    "        for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + "
    "threadIdx.x;\n"
    "             i < packs; i += step)\n"
    "            for (int peer = 0; peer < peers; peer++)\n"
    "                to.of[peer][i] = value;\n"
    "}\n";

enum { TURNS = 7 };
#define PART ((uint64_t)16 << 20) /* to each peer in a turn: larger than what a switch buffers */
/* Sent between two events, so that starts that differ by some microseconds are no part of it. */
#define SENT 8e9

typedef struct places { /* as the kernel has it */
    CUdeviceptr of[ARF_MAX_RANKS];
} places;

typedef struct sender {
    const arf_tuner *tuner;
    const arf_cuda *device;
    arf_symmetric memory;
    places to;
    int peers, turns;
    CUstream stream;
    CUevent begin, end;
    inline_kernel kernel;
} sender;

static arfuse_status prepare(sender *s, arf_error *error)
{
    const arf_driver *driver = &s->device->driver;
    ARF_TRY(inline_kernel_make(s->device, "write", write_text, &s->kernel, error));
    ARF_TRY(ARF_CU(driver, error, cuStreamCreate, &s->stream, CU_STREAM_NON_BLOCKING));
    ARF_TRY(ARF_CU(driver, error, cuEventCreate, &s->begin, CU_EVENT_DEFAULT));
    return ARF_CU(driver, error, cuEventCreate, &s->end, CU_EVENT_DEFAULT);
}

/* One segment of every other process, beginning with the next one's. */
static void choose_places(sender *s)
{
    const arf_team *team = &s->tuner->team;
    const int processes = team->bootstrap.size, self = team->bootstrap.rank;
    for (int next = 1; next < processes; next++) {
        int rank = 0;
        while (team->process_of[rank] != (self + next) % processes)
            rank++;
        s->to.of[s->peers++] = s->memory.peer[rank] + (uint64_t)self * PART;
    }
    s->turns = (int)fmax(1, SENT / ((double)PART * s->peers));
}

static arfuse_status write_all(sender *s, double *us, arf_error *error)
{
    const arf_driver *driver = &s->device->driver;
    unsigned long long packs = PART / 16;
    float ms = 0;
    void *parameters[] = {&s->to, &s->peers, &packs, &s->turns};
    ARF_TRY(ARF_CU(driver, error, cuEventRecord, s->begin, s->stream));
    ARF_TRY(inline_kernel_fill(s->device, &s->kernel, parameters, s->stream, error));
    ARF_TRY(ARF_CU(driver, error, cuEventRecord, s->end, s->stream));
    ARF_TRY(ARF_CU(driver, error, cuStreamSynchronize, s->stream));
    ARF_TRY(ARF_CU(driver, error, cuEventElapsedTime, &ms, s->begin, s->end));
    *us = fmax(ms, 1e-6) * 1000;
    return ARFUSE_OK;
}

static arfuse_status measure(sender *s, double *speed, arf_error *error)
{
    const arf_team *team = &s->tuner->team;
    double turn[TURNS], us = 0;
    ARF_TRY(arf_symmetric_create(&s->device->driver, s->device->device, team, s->device->way,
                                 (uint64_t)team->bootstrap.size * PART, &s->memory, error));
    ARF_TRY(arf_team_vote(team, prepare(s, error), error));
    choose_places(s);
    for (int i = -1; i < TURNS; i++) { /* one to warm up; all begin together */
        ARF_TRY(arf_team_barrier(team, error));
        ARF_TRY(arf_team_vote(team, write_all(s, &us, error), error));
        if (i >= 0)
            turn[i] = (double)PART * s->peers * s->turns / us;
    }
    *speed = arf_median(turn, TURNS);
    return ARFUSE_OK;
}

arfuse_status link_speed_cuda(const arf_tuner *tuner, double *speed, arf_error *error)
{
    sender s = {.tuner = tuner, .device = (const arf_cuda *)tuner->device};
    const arf_driver *driver = &s.device->driver;
    ARF_TRY(arf_team_vote(&tuner->team, arf_cuda_enter(s.device, error), error));
    arfuse_status status = s.device->way == ARF_WAY_NONE
                               ? arf_fail(error, ARFUSE_NOT_SUPPORTED, "no memory can be mapped")
                               : measure(&s, speed, error);
    if (s.begin != NULL)
        driver->cuEventDestroy(s.begin);
    if (s.end != NULL)
        driver->cuEventDestroy(s.end);
    if (s.stream != NULL)
        driver->cuStreamDestroy(s.stream);
    inline_kernel_free(s.device, &s.kernel);
    arf_symmetric_destroy(driver, &tuner->team, &s.memory);
    arf_cuda_leave(s.device);
    return status;
}

#else
typedef int nothing_without_cuda;
#endif
