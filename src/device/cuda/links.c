/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/links.h"

#include <stdio.h>
#include <string.h>

const char *arf_pair_name(arf_pair pair)
{
    static const char *const names[] = {"same", "nvlink", "pcie", "none", "unknown", "remote"};
    return names[pair];
}

/* This process's own number for a GPU; -1: CUDA_VISIBLE_DEVICES hides it here. */
static int ordinal_of(const arf_seat_claim *own, const CUuuid *gpu)
{
    for (int i = 0; i < own->gpus; i++)
        if (memcmp(own->gpu[i].bytes, gpu->bytes, sizeof gpu->bytes) == 0)
            return i;
    return -1;
}

/* Native atomics are what NVLink has and PCIe has not (CUDA programming guide, peer-to-peer). */
arf_pair arf_links_pair(const arf_driver *driver, CUdevice from, CUdevice to)
{
    int access = 0, atomics = 0;
    if (driver->cuDeviceGetP2PAttribute(&access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, from,
                                        to) != CUDA_SUCCESS)
        return ARF_PAIR_UNKNOWN;
    if (!access)
        return ARF_PAIR_NONE;
    driver->cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from,
                                    to);
    return atomics ? ARF_PAIR_NVLINK : ARF_PAIR_PCIE;
}

static arf_pair ask_nvml(const arf_nvml *nvml, const CUuuid *from, const CUuuid *to)
{
    int access = arf_nvml_peer_access(nvml, from, to);
    if (access < 0)
        return ARF_PAIR_UNKNOWN;
    if (access == 0)
        return ARF_PAIR_NONE;
    return arf_nvml_peer_nvlink(nvml, from, to) > 0 ? ARF_PAIR_NVLINK : ARF_PAIR_PCIE;
}

void arf_links_look(const arf_driver *driver, const arf_nvml *nvml, const arf_team *team,
                    const arf_seat_claim *claim, const arf_seat *seat, arf_pair *pair)
{
    const int self = team->bootstrap.rank;
    const CUuuid *from = &claim[self].gpu[seat[self].ordinal];
    for (int p = 0; p < team->bootstrap.size; p++) {
        const CUuuid *to = &claim[p].gpu[seat[p].ordinal];
        CUdevice own, other;
        int ordinal = ordinal_of(&claim[self], to);
        if (arf_seats_shared(claim, seat, self, p))
            pair[p] = ARF_PAIR_SAME;
        else if (!arf_node_same(&claim[self].node, &claim[p].node))
            pair[p] = ARF_PAIR_REMOTE;
        else if (ordinal >= 0 && driver->cuDeviceGet(&own, seat[self].ordinal) == CUDA_SUCCESS &&
                 driver->cuDeviceGet(&other, ordinal) == CUDA_SUCCESS)
            pair[p] = arf_links_pair(driver, own, other);
        else
            pair[p] = ask_nvml(nvml, from, to);
    }
}

static arfuse_status name_bad_pairs(const arf_team *team, const arf_seat_claim *claim,
                                    const arf_seat *seat, const unsigned char *all,
                                    arf_error *error)
{
    const int size = team->bootstrap.size;
    char text[900] = "", a[ARF_UUID_TEXT], b[ARF_UUID_TEXT];
    size_t used = 0;
    int bad = 0;
    for (int p = 0; p < size; p++)
        for (int q = 0; q < size; q++) {
            if (all[p * size + q] != ARF_PAIR_NONE)
                continue;
            bad++;
            arf_uuid_text(&claim[p].gpu[seat[p].ordinal], a);
            arf_uuid_text(&claim[q].gpu[seat[q].ordinal], b);
            if (used + 1 < sizeof text)
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%d->%d (%s -> %s)",
                                         bad > 1 ? ", " : "", p, q, a, b);
        }
    if (bad == 0)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_HARDWARE,
                    "no peer access between %d of %d directed pairs of processes: %s; every GPU of "
                    "a team must reach every other",
                    bad, size * (size - 1), text);
}

arfuse_status arf_links_agree(const arf_team *team, const arf_seat_claim *claim,
                              const arf_seat *seat, const arf_pair *own, arf_link *link,
                              bool *guessed, arf_error *error)
{
    const int size = team->bootstrap.size;
    unsigned char mine[ARF_MAX_RANKS] = {0}, all[ARF_MAX_RANKS * ARF_MAX_RANKS];
    for (int p = 0; p < size; p++)
        mine[p] = (unsigned char)own[p];
    ARF_TRY(arf_team_allgather(team, mine, all, (size_t)size, error));
    bool shared = false, pcie = false;
    *guessed = false;
    for (int p = 0; p < size; p++)
        shared = shared || seat[p].ranks > 1;
    for (int i = 0; i < size * size; i++) {
        pcie = pcie || all[i] == ARF_PAIR_PCIE || all[i] == ARF_PAIR_UNKNOWN;
        *guessed = *guessed || all[i] == ARF_PAIR_UNKNOWN;
    }
    *link = shared ? ARF_LINK_SHARED_GPU : pcie ? ARF_LINK_PCIE : ARF_LINK_NVLINK;
    return name_bad_pairs(team, claim, seat, all, error);
}
