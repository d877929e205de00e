/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/mps.h"

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

arf_share arf_mps_look(const arf_driver *driver, CUdevice device, int sm_seen, int sm_all)
{
    const char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    arf_share own = {.sm_seen = sm_seen, .sm_all = sm_all};
    int mps = 0;
    /* A driver that does not know the question leaves the SM count to tell. */
    if (driver->cuDeviceGetAttribute(&mps, ARF_MPS_ENABLED, device) != CUDA_SUCCESS)
        mps = 0;
    if (own.sm_all == 0 && percentage != NULL && strtod(percentage, NULL) >= 1)
        own.sm_all = (int)(sm_seen * 100 / strtod(percentage, NULL));
    own.mps = mps != 0 || (own.sm_all > 0 && sm_seen < own.sm_all);
    return own;
}

/* The processes on one GPU, the first of them `first`. */
static arfuse_status judge_gpu(const arf_team *team, const arf_seat_claim *claim,
                               const arf_seat *seat, const arf_share *all, int first, bool *mps,
                               arf_error *error)
{
    int under = 0, seen = 0, has = 0;
    for (int p = 0; p < team->bootstrap.size; p++) {
        if (!arf_seats_shared(claim, seat, first, p))
            continue;
        under += all[p].mps != 0;
        seen += all[p].sm_seen;
        has = all[p].sm_all > has ? all[p].sm_all : has;
    }
    *mps = under == seat[first].processes;
    if (under != 0 && !*mps)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "%d processes share the GPU of process %d, and %d of them run under CUDA "
                        "MPS: all or none must (CUDA_MPS_PIPE_DIRECTORY)",
                        seat[first].processes, first, under);
    if (*mps && (has == 0 || seen > has))
        return arf_fail(error, ARFUSE_HARDWARE,
                        "%d processes share the GPU of process %d under CUDA MPS and may use %d "
                        "SMs together, while it has %d: kernels that wait for each other could not "
                        "all run; set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d (or less) for each",
                        seat[first].processes, first, seen, has, 100 / seat[first].processes);
    return ARFUSE_OK;
}

arfuse_status arf_mps_agree(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                            const arf_share *own, char timing[ARF_TIMING_TEXT], arf_error *error)
{
    arf_share all[ARF_MAX_RANKS];
    timing[0] = '\0';
    ARF_TRY(arf_team_allgather(team, own, all, sizeof *own, error));
    for (int p = 0; p < team->bootstrap.size; p++) {
        bool mps;
        if (seat[p].processes < 2)
            continue;
        ARF_TRY(judge_gpu(team, claim, seat, all, p, &mps, error));
        if (!mps)
            snprintf(timing, ARF_TIMING_TEXT,
                     "%d processes share a GPU without CUDA MPS: they take turns, so calls are "
                     "right but their times mean nothing; use one process with --tp, or start "
                     "nvidia-cuda-mps-control",
                     seat[p].processes);
    }
    return ARFUSE_OK;
}
