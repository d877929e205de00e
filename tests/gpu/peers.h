/* SPDX-License-Identifier: Apache-2.0 */
/* One process's end of a team whose processes share GPU 0: device, space, trial data, plans. */
#ifndef ARF_TESTS_GPU_PEERS_H
#define ARF_TESTS_GPU_PEERS_H

#include "gpu/gpu.h"

enum { PEER_HIDDEN = 6144, PEER_TOP_K = 10, PEER_TOKENS = 33, PEER_FORMS = 14 };

typedef struct peer {
    arf_team team;
    arf_cuda *cuda;
    arf_cuda_space *space;
    arf_trial *trial;
} peer;

/* Protocol, pattern and tuning number `index` of PEER_FORMS; even ones are allreduce. */
arf_plan peer_form(int index, arf_pattern *pattern, const char **name);
arf_shape peer_shape(int ranks);
arf_space_spec peer_spec(int ranks, double limit);

/* A GPU for each process where there are enough; false: all on GPU 0. Set before processes start.
 */
extern bool peer_spread;

/* Collective; vote. The device alone; or device, space and trial. */
arfuse_status peer_open_device(const arfuse_bootstrap *bootstrap, int local_ranks, peer *at,
                               arf_error *error);
arfuse_status peer_open(const arfuse_bootstrap *bootstrap, int local_ranks, double limit, peer *at,
                        arf_error *error);
/* Behind peer_open_device: space and trial. */
arfuse_status peer_open_space(peer *at, arf_numerics numerics, double limit, arf_error *error);
void peer_close(peer *at); /* accepts one that failed half-way */
/* The processes run at the same time (MPS), so times mean something. */
bool peer_side_by_side(const peer *at);
/* Collective; votes. */
arfuse_status peer_prepare(peer *at, int form, int tokens, arf_launch *launch, const char **name,
                           arf_error *error);

/* One call with poisoned outputs, eager or replayed, waited for; not checked. */
arfuse_status peer_call(peer *at, const arf_launch *launch, bool in_graph, arf_error *error);
/* Whether norm_out of local rank 0 is NaN throughout, as what was not finished must be. */
arfuse_status peer_all_nan(peer *at, const arf_launch *launch, bool *yes, arf_error *error);

#endif
