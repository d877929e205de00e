/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/mps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* MPS documentation, "CUDA_MPS_PIPE_DIRECTORY" */
static const char default_folder[] = "/tmp/nvidia-mps";

bool arf_mps_daemon(char *folder, size_t size)
{
    const char *named = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(folder, size, "%s", named != NULL && named[0] != '\0' ? named : default_folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder);
    if (n < 0 || (size_t)n >= sizeof address.sun_path)
        return false;
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (to < 0)
        return false;
    /* Some versions listen by packets, others by a stream or a pipe: only refusal means "dead". */
    bool there = access(address.sun_path, F_OK) == 0;
    if (there && connect(to, (struct sockaddr *)&address, sizeof address) != 0) {
        char pid_file[200], text[32] = "";
        snprintf(pid_file, sizeof pid_file, "%.150s/nvidia-cuda-mps-control.pid", folder);
        FILE *file = fopen(pid_file, "re");
        there = file != NULL && fgets(text, sizeof text, file) != NULL;
        if (file != NULL)
            fclose(file);
        char process[64];
        snprintf(process, sizeof process, "/proc/%ld", strtol(text, NULL, 10));
        there = there && access(process, F_OK) == 0;
    }
    close(to);
    return there;
}

/* A limit comes in whole TPCs of two SMs, the least that work is given to. By the MPS documentation
 * it is "rounded up to the next hardware-supported thread count limit"; an H200's driver tells SMs
 * that are rounded down. Where a driver does not tell, the larger number is taken. */
#define SMS_A_TPC 2

static int limited_to(int sm_all, double percentage)
{
    int sms = (int)ceil(sm_all * percentage / 100);
    sms = (sms + SMS_A_TPC - 1) / SMS_A_TPC * SMS_A_TPC;
    return sms < sm_all ? sms : sm_all;
}

int arf_mps_percentage(int processes, int sm_all)
{
    const int percentage = sm_all / processes / SMS_A_TPC * SMS_A_TPC * 100 / sm_all;
    return percentage > 0 ? percentage : 1;
}

/* Of the client's environment; 100: none. */
static double percentage_here(void)
{
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const double percentage = text != NULL ? strtod(text, NULL) : 0;
    return percentage > 0 && percentage < 100 ? percentage : 100;
}

arf_share arf_mps_look(const arf_driver *driver, CUdevice device, int sm_seen, int sm_all)
{
    arf_share own = {.sm_seen = sm_seen, .sm_all = sm_all > sm_seen ? sm_all : sm_seen};
    const double percentage = percentage_here();
    int mps = 0;
    /* A driver that does not know the question leaves the SM count to tell. */
    if (driver->cuDeviceGetAttribute(&mps, ARF_MPS_ENABLED, device) != CUDA_SUCCESS)
        mps = 0;
    own.mps = mps != 0 || own.sm_seen < own.sm_all;
    if (!own.mps || percentage == 100)
        return own;
    if (sm_all == 0)
        own.sm_all = (int)(sm_seen * 100 / percentage) / SMS_A_TPC * SMS_A_TPC;
    else if (sm_seen >= sm_all)
        own.sm_seen = limited_to(sm_all, percentage);
    return own;
}

/* The processes on one GPU, the first of them `first`. */
static arfuse_status judge_gpu(const arf_team *team, const arf_seat_claim *claim,
                               const arf_seat *seat, const arf_share *all, int first, bool *mps,
                               arf_error *error)
{
    const int processes = seat[first].processes;
    int under = 0, seen = 0, has = 0, other = -1;
    for (int p = 0; p < team->bootstrap.size; p++) {
        if (!arf_seats_shared(claim, seat, first, p))
            continue;
        under += all[p].mps != 0;
        seen += all[p].sm_seen;
        has = all[p].sm_all > has ? all[p].sm_all : has;
        if (other < 0 && all[p].sm_seen != all[first].sm_seen)
            other = p;
    }
    *mps = under == processes;
    if (under != 0 && !*mps)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "%d processes share the GPU of process %d, and %d of them run under CUDA "
                        "MPS: all or none must (CUDA_MPS_PIPE_DIRECTORY)",
                        processes, first, under);
    const int percentage = arf_mps_percentage(processes, has);
    if (*mps && other >= 0)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "processes %d and %d share a GPU under CUDA MPS, and may use %d and %d of "
                        "its SMs: their kernels must be alike; set "
                        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d (or less) for each",
                        first, other, all[first].sm_seen, all[other].sm_seen, percentage);
    if (*mps && seen > has)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "%d processes share the GPU of process %d under CUDA MPS and may use %d "
                        "SMs together, while it has %d: kernels that wait for each other could not "
                        "all run; set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d (or less) for each",
                        processes, first, seen, has, percentage);
    return ARFUSE_OK;
}

arfuse_status arf_mps_judge(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                            const arf_share *share, char timing[ARF_TIMING_TEXT], arf_error *error)
{
    timing[0] = '\0';
    for (int p = 0; p < team->bootstrap.size; p++) {
        bool mps;
        if (seat[p].processes < 2)
            continue;
        ARF_TRY(judge_gpu(team, claim, seat, share, p, &mps, error));
        if (!mps)
            snprintf(timing, ARF_TIMING_TEXT,
                     "%d processes share a GPU without CUDA MPS: they take turns, so calls are "
                     "right but their times mean nothing; use one process with --tp, or start "
                     "nvidia-cuda-mps-control",
                     seat[p].processes);
    }
    return ARFUSE_OK;
}
