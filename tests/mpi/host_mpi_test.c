/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device with one process a rank, under MPI. Each case is a line of TAP
 * from rank 0; a case passes when it passed on every rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "device/device.h"
#include "support/device_case.h"

static int rank, size, cases, failures;
static arf_team team;
static arf_device *device;

static int allgather(void *context, const void *send, void *receive, size_t bytes)
{
    (void)context;
    return MPI_Allgather(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static int barrier(void *context)
{
    (void)context;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static void tell(const char *name, arfuse_status status, arf_error *error)
{
    status = arf_team_vote(&team, status, error);
    cases++;
    failures += status != ARFUSE_OK;
    if (rank == 0) {
        printf("%sok %d - %s with %d processes\n", status == ARFUSE_OK ? "" : "not ", cases, name,
               size);
        if (status != ARFUSE_OK)
            printf("# %s\n", error->text);
        fflush(stdout);
    }
}

static void matrix(const char *name, int hidden, int top_k, int switches, int64_t capacity)
{
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = {size,
                       hidden,
                       top_k,
                       (arf_switch)(switches & 1),
                       (arf_switch)(switches >> 1 & 1),
                       (arf_switch)(switches >> 2 & 1)};
    arfuse_status status = ARFUSE_OK;
    for (int kind = 0; kind < ARF_TRIAL_KINDS && status == ARFUSE_OK; kind++)
        status =
            case_matrix(device, &shape, capacity, (arf_trial_kind)kind, (uint64_t)switches, &error);
    tell(name, status, &error);
}

static void mixed(const char *name, int hidden, int64_t most, int calls, unsigned late_us)
{
    arf_error error = ARF_ERROR_INIT;
    arf_shape shape = {size, hidden, 3, ARF_ON, ARF_ON, ARF_ON};
    tell(name, case_mixed(device, &shape, most, calls, late_us, 9, &error), &error);
}

/* The widths, expert counts, switches and row counts of the contract. Every process computes what
 * is expected of all ranks, so each size takes two settings of the switches; pairs meet over the
 * sizes (and host_test.c has all eight settings). */
static void everything(void)
{
    static const int hidden[] = {8, 2880, 3584, 4096, 5120, 6144, 7168, 8192, 16384};
    static const int top_k[] = {1, 3, 6, 8, 10, 16};
    for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++)
        for (int i = 0; i < 2; i++) {
            char name[64];
            int switches = (int)(h * 3 + (size_t)i * 7 + (size_t)size) % 8;
            int k = top_k[(h + (size_t)switches) % 6];
            snprintf(name, sizeof name, "H %d K %d switches %d", hidden[h], k, switches);
            matrix(name, hidden[h], k, switches, 18);
        }
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    arfuse_bootstrap bootstrap = {sizeof bootstrap, NULL, rank, size, allgather, barrier};
    arf_error error = ARF_ERROR_INIT;
    if (case_host(&bootstrap, 1, &team, &device, &error) != ARFUSE_OK) {
        printf("not ok 1 - open: %s\n", error.text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const char *text = getenv("ARFUSE_TEST_LONG");
    const bool long_run = text && strcmp(text, "1") == 0;
    matrix("one pack", 8, 2, 7, 18);
    matrix("an odd width", 2880, 4, 5, 18);
    matrix("no norm", 6144, 10, 6, 18);
    mixed("mixed calls at H 256", 256, 64, size == 4 ? 10000 : 1000, 0);
    mixed("mixed calls at H 6144", 6144, 64, size == 8 ? 200 : 50, 0);
    mixed("calls that one process is late for", 64, 513, long_run ? 1000 : 150, 5000);
    if (long_run)
        everything();
    arf_device_close(device);
    if (rank == 0)
        printf("1..%d\n", cases);
    MPI_Finalize();
    return failures != 0;
}
