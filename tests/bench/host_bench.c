/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each host protocol against a plain copy that reads and writes the same bytes: what the protocol
 * must move through memory (floor.h). Two local ranks, a thread
 * each, in turns with the copy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/floor.h"
#include "device/device.h"
#include "device/trial.h"
#include "rules/candidates.h"

enum { RANKS = 2, HIDDEN = 6144, TOP_K = 10, MOST = 256, ROUNDS = 9 };

static void require(arfuse_status status, const arf_error *error)
{
    if (status == ARFUSE_OK)
        return;
    fprintf(stderr, "host_bench: %s\n", error->text);
    exit(1);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int first_seed(arf_space *space, arf_pattern pattern, arf_protocol protocol)
{
    static arf_plans seeds;
    arf_problem problem = arf_device_problem(space->device, &space->spec.shape);
    arf_error error = ARF_ERROR_INIT;
    int id = -1;
    arf_seeds(&problem, pattern, protocol, &seeds);
    require(seeds.count > 0 ? ARFUSE_OK : arf_fail(&error, ARFUSE_FAILURE, "no seed"), &error);
    require(space->device->ops->prepare(space, pattern, &seeds.plan[0], &id, &error), &error);
    return id;
}

static double copy_us(const arf_device *device, char *to, const char *from, size_t bytes, int calls)
{
    double start = device->ops->now(device);
    for (int i = 0; i < calls; i++) {
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory"); /* every copy is wanted */
    }
    return (device->ops->now(device) - start) / calls * 1e6;
}

static void race(arf_space *space, arf_trial *trial, arf_pattern pattern, arf_protocol protocol,
                 int64_t tokens)
{
    const arf_device *device = space->device;
    arf_error error = ARF_ERROR_INIT;
    arf_launch launch = arf_trial_launch(trial, pattern, tokens);
    launch.plan = first_seed(space, pattern, protocol);
    launch.then = protocol == ARF_SEPARATE ? first_seed(space, ARF_ALLREDUCE, ARF_BT) : -1;
    const arf_timing timing = {.calls = tokens > 32 ? 5 : 50};
    const size_t bytes =
        (size_t)floor_bytes(&space->spec.shape, 1, pattern, protocol, ARF_BT, tokens) / 2;
    char *memory = calloc(2, bytes);
    if (memory == NULL)
        require(arf_fail(&error, ARFUSE_FAILURE, "out of memory"), &error);
    double call[ROUNDS], copy[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double us[RANKS];
        require(device->ops->time(space, &launch, &timing, us, &error), &error);
        call[round] = us[0] > us[1] ? us[0] : us[1];
        copy[round] = copy_us(device, memory, memory + bytes, bytes, timing.calls);
    }
    free(memory);
    qsort(call, ROUNDS, sizeof call[0], ascending);
    qsort(copy, ROUNDS, sizeof copy[0], ascending);
    printf("%-10s %-9s M=%-4lld call %9.1f us  copy %8.1f us  ratio %6.1f\n",
           arf_pattern_name(pattern), arf_protocol_name(protocol), (long long)tokens,
           call[ROUNDS / 2], copy[ROUNDS / 2], call[ROUNDS / 2] / copy[ROUNDS / 2]);
}

int main(void)
{
    static const int64_t tokens[] = {1, 8, 64, MOST};
    const arf_shape shape = {RANKS, HIDDEN, TOP_K, ARF_ON, ARF_ON, ARF_ON};
    arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    arf_device_options options = {.spec = "host"};
    arf_space_spec spec = {.shape = shape, .wait_limit_seconds = 30};
    for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
        spec.capacity[protocol] = MOST;
    arf_error error = ARF_ERROR_INIT;
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    arf_trial *trial = NULL;
    require(arf_team_create(&alone, RANKS, &team, &error), &error);
    require(arf_device_open(&options, &team, &device, &error), &error);
    require(device->ops->space_create(device, &spec, &space, &error), &error);
    require(arf_trial_create(device, &shape, MOST, ARF_TRIAL_RANDOM, 1, &trial, &error), &error);
    printf("host device, H=%d, K=%d, %d local ranks; median of %d rounds\n", HIDDEN, TOP_K, RANKS,
           ROUNDS);
    for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
            for (int protocol = 0; protocol < ARF_PROTOCOLS; protocol++)
                if (pattern == ARF_FINALIZE || protocol != ARF_SEPARATE)
                    race(space, trial, (arf_pattern)pattern, (arf_protocol)protocol, tokens[i]);
    arf_trial_destroy(trial);
    device->ops->space_destroy(space);
    arf_device_close(device);
    return 0;
}
