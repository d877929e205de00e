/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/seat.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/nvml.h"

/* ---- matching -------------------------------------------------------------------------------- */

/* The search for one process's GPU (augmenting paths, Kuhn 1955). */
typedef struct matching {
    const arf_seat_claim *claim;
    int processes;
    int place[ARF_MAX_RANKS];  /* place of a process among those of its node */
    int chosen[ARF_MAX_RANKS]; /* ordinal; -1: none yet */
    bool asked[ARF_MAX_RANKS]; /* to move, in this search */
} matching;

static bool same(const CUuuid *a, const CUuuid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static int holder(const matching *m, const CUuuid *gpu)
{
    for (int p = 0; p < m->processes; p++)
        if (m->chosen[p] >= 0 && same(&m->claim[p].gpu[m->chosen[p]], gpu))
            return p;
    return -1;
}

static bool seat_one(matching *m, int process)
{
    const arf_seat_claim *claim = &m->claim[process];
    m->asked[process] = true;
    for (int free_only = 1; free_only >= 0; free_only--)
        for (int i = 0; i < claim->gpus; i++) {
            int ordinal = (m->place[process] + i) % claim->gpus;
            if (claim->fixed >= 0 && ordinal != claim->fixed)
                continue;
            int other = holder(m, &claim->gpu[ordinal]);
            if (other >= 0) {
                if (free_only || m->asked[other])
                    continue;
                if (!seat_one(m, other))
                    continue;
            }
            m->chosen[process] = ordinal;
            return true;
        }
    return false;
}

static int ranks_of(const arf_team *team, int process)
{
    int ranks = 0;
    for (int r = 0; r < team->tp_size; r++)
        ranks += team->process_of[r] == process;
    return ranks;
}

/* Who sits nowhere joins the GPU with the fewest ranks. */
static void join(const arf_team *team, matching *m, int process)
{
    const arf_seat_claim *claim = &m->claim[process];
    int fewest = -1;
    for (int i = 0; i < claim->gpus; i++) {
        int ordinal = (m->place[process] + i) % claim->gpus, ranks = 0;
        if (claim->fixed >= 0 && ordinal != claim->fixed)
            continue;
        for (int p = 0; p < m->processes; p++)
            if (m->chosen[p] >= 0 && same(&m->claim[p].gpu[m->chosen[p]], &claim->gpu[ordinal]))
                ranks += ranks_of(team, p);
        if (fewest < 0 || ranks < fewest) {
            fewest = ranks;
            m->chosen[process] = ordinal;
        }
    }
}

bool arf_seats_shared(const arf_seat_claim *claim, const arf_seat *seat, int p, int q)
{
    return seat[p].ordinal >= 0 && seat[q].ordinal >= 0 &&
           same(&claim[p].gpu[seat[p].ordinal], &claim[q].gpu[seat[q].ordinal]);
}

void arf_seats(const arf_team *team, const arf_seat_claim *claim, arf_seat *seat)
{
    matching m = {.claim = claim, .processes = team->bootstrap.size};
    for (int p = 0; p < m.processes; p++) {
        m.chosen[p] = -1;
        for (int q = 0; q < p; q++)
            m.place[p] += arf_node_same(&claim[p].node, &claim[q].node);
    }
    for (int p = 0; p < m.processes; p++) {
        memset(m.asked, 0, sizeof m.asked);
        seat_one(&m, p);
    }
    for (int p = 0; p < m.processes; p++)
        if (m.chosen[p] < 0)
            join(team, &m, p);
    for (int p = 0; p < m.processes; p++)
        seat[p] = (arf_seat){.ordinal = m.chosen[p]};
    for (int p = 0; p < m.processes; p++)
        for (int q = 0; q < m.processes; q++)
            if (arf_seats_shared(claim, seat, p, q)) {
                seat[p].processes++;
                seat[p].ranks += ranks_of(team, q);
            }
}

int arf_seat_nodes(const arf_seat_claim *claim, int count)
{
    int nodes = 0;
    for (int p = 0; p < count; p++) {
        bool known = false;
        for (int q = 0; q < p; q++)
            known = known || arf_node_same(&claim[p].node, &claim[q].node);
        nodes += !known;
    }
    return nodes;
}

/* ---- judgement ------------------------------------------------------------------------------- */

/* "ranks 0-7 on GPU-...": of the process's GPU. */
static size_t describe(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                       int process, char *text, size_t size)
{
    bool member[ARF_MAX_RANKS];
    char ranks[256], uuid[ARF_UUID_TEXT];
    for (int r = 0; r < team->tp_size; r++)
        member[r] = arf_seats_shared(claim, seat, process, team->process_of[r]);
    arf_rank_set_text(member, team->tp_size, ranks, sizeof ranks);
    arf_uuid_text(&claim[process].gpu[seat[process].ordinal], uuid);
    return (size_t)snprintf(text, size, "rank%s %s on %s", seat[process].ranks > 1 ? "s" : "",
                            ranks, uuid);
}

int arf_seats_text(const arf_team *team, const arf_seat_claim *claim, const arf_seat *seat,
                   char *text, size_t size)
{
    size_t used = 0;
    int gpus = 0;
    text[0] = '\0';
    for (int p = 0; p < team->bootstrap.size; p++) {
        bool known = false;
        for (int q = 0; q < p; q++)
            known = known || arf_seats_shared(claim, seat, p, q);
        if (known)
            continue;
        if (gpus++ > 0 && used + 1 < size)
            used += (size_t)snprintf(text + used, size - used, ", ");
        if (used + 1 < size)
            used += describe(team, claim, seat, p, text + used, size - used);
    }
    if (used >= size)
        strcpy(text + size - sizeof "...", "...");
    return gpus;
}

arfuse_status arf_seats_judge(const arf_team *team, const arf_seat_claim *claim,
                              const arf_seat *seat, bool sharing, const char *command,
                              arf_error *error)
{
    const int processes = team->bootstrap.size;
    char text[600];
    bool shared = false;
    for (int p = 0; p < processes; p++) {
        if (seat[p].ordinal < 0)
            return arf_fail(error, ARFUSE_HARDWARE,
                            "process %d of %d sees no GPU that it may use (CUDA_VISIBLE_DEVICES is "
                            "one reason); every process needs one",
                            p, processes);
        shared = shared || seat[p].ranks > 1;
    }
    if (!shared || sharing)
        return ARFUSE_OK;
    const int gpus = arf_seats_text(team, claim, seat, text, sizeof text);
    if (command == NULL)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "%d ranks on %d GPU%s: %s; ranks of a team need a GPU each, unless one "
                        "process hosts them all (local_ranks) or processes may share one "
                        "(gpu_sharing)",
                        team->tp_size, gpus, gpus == 1 ? "" : "s", text);
    return arf_fail(error, ARFUSE_HARDWARE,
                    "%d ranks on %d GPU%s: %s; ranks of a team need a GPU each. To share it, "
                    "host all ranks in one process: mpirun -n 1 %s --tp %d --gpu-sharing",
                    team->tp_size, gpus, gpus == 1 ? "" : "s", text, command, team->tp_size);
}
