/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/peers.h"

/* ---- forms: protocol, pattern, tuning -----------------------------------------------------------
 */

arf_plan peer_form(int index, arf_pattern *pattern, const char **name)
{
    static const struct {
        arf_protocol protocol;
        int kernels, owner;
        const char *name;
    } forms[PEER_FORMS / 2] = {{ARF_LL, 2, 0, "ll"},
                               {ARF_LL, 1, 0, "ll, one kernel"},
                               {ARF_BT, 3, 0, "bt"},
                               {ARF_BT, 3, 1, "bt by slices"},
                               {ARF_UNFUSED, 0, 0, "unfused"},
                               {ARF_HT, 0, 0, "ht"},
                               {ARF_BT, 1, 0, "bt, one kernel"}};
    *pattern = (arf_pattern)(index % 2);
    *name = forms[index / 2].name;
    if (index == 7) { /* slices are tested by the other pattern; separate has no other */
        *name = "separate";
        return gpu_plan(ARF_SEPARATE, ARF_FINALIZE);
    }
    arf_plan plan = gpu_plan(forms[index / 2].protocol, *pattern);
    if (plan.protocol == ARF_HT) {
        const arf_shape of = peer_shape(8);   /* its plans do not depend on the ranks */
        gpu_ht_plan(&of, *pattern, 0, &plan); /* the shape has HT */
    }
    gpu_set(&plan, *pattern, "kernels", forms[index / 2].kernels);
    gpu_set(&plan, *pattern, "owner", forms[index / 2].owner);
    if (forms[index / 2].kernels == 1) { /* of BT: a pack a thread */
        gpu_set(&plan, *pattern, "rms_threads", 256);
        gpu_set(&plan, *pattern, "rms_cluster", PEER_HIDDEN / 8 / 256);
    }
    return plan;
}

arf_shape peer_shape(int ranks)
{
    return (arf_shape){ranks, PEER_HIDDEN, PEER_TOP_K, ARF_ON, ARF_ON, ARF_ON};
}

/* ---- one process's end --------------------------------------------------------------------------
 */

void peer_close(peer *at)
{
    arf_trial_destroy(at->trial);
    if (at->space != NULL)
        arf_cuda_space_destroy(&at->space->base);
    if (at->cuda != NULL)
        arf_device_close(&at->cuda->base);
    *at = (peer){0};
}

arf_space_spec peer_spec(int ranks, double limit)
{
    arf_space_spec spec = {.shape = peer_shape(ranks), .wait_limit_seconds = limit};
    spec.capacity[ARF_LL] = spec.capacity[ARF_BT] = spec.capacity[ARF_UNFUSED] =
        spec.capacity[ARF_SEPARATE] = spec.capacity[ARF_HT] = PEER_TOKENS;
    return spec;
}

bool peer_spread;

arfuse_status peer_open_device(const arfuse_bootstrap *bootstrap, int local_ranks, peer *at,
                               arf_error *error)
{
    arf_device_options options = {
        .spec = "cuda", .cuda_ordinal = peer_spread ? -1 : 0, .gpu_sharing = true};
    arf_device *device = NULL;
    *at = (peer){0};
    ARF_TRY(arf_team_create(bootstrap, local_ranks, &at->team, error));
    ARF_TRY(arf_cuda_device.open(&options, &at->team, &device, error));
    at->cuda = (arf_cuda *)device;
    return ARFUSE_OK;
}

arfuse_status peer_open(const arfuse_bootstrap *bootstrap, int local_ranks, double limit, peer *at,
                        arf_error *error)
{
    ARF_TRY(peer_open_device(bootstrap, local_ranks, at, error));
    return peer_open_space(at, ARF_FIXED, limit, error);
}

arfuse_status peer_open_space(peer *at, arf_numerics numerics, double limit, arf_error *error)
{
    arf_space *space = NULL;
    arf_shape of = peer_shape(at->team.tp_size);
    arf_space_spec spec = peer_spec(at->team.tp_size, limit);
    spec.numerics = numerics;
    ARF_TRY(arf_cuda_space_create(&at->cuda->base, &spec, &space, error));
    at->space = (arf_cuda_space *)space;
    arfuse_status status = arf_trial_create(&at->cuda->base, &of, PEER_TOKENS, ARF_TRIAL_RANDOM, 11,
                                            &at->trial, error);
    return arf_team_vote(&at->team, status, error);
}

bool peer_side_by_side(const peer *at)
{
    return at->cuda->timing[0] == '\0';
}

arfuse_status peer_prepare(peer *at, int form, int tokens, arf_launch *launch, const char **name,
                           arf_error *error)
{
    arf_pattern pattern;
    arf_plan plan = peer_form(form, &pattern, name);
    *launch = arf_trial_launch(at->trial, pattern, tokens);
    return arf_team_vote(&at->team, gpu_prepare(at->space, &plan, launch, error), error);
}

arfuse_status peer_call(peer *at, const arf_launch *launch, bool in_graph, arf_error *error)
{
    CUgraphExec graph = NULL;
    ARF_TRY(arf_trial_poison(at->trial, error));
    arfuse_status status = in_graph ? gpu_capture(at->space, launch, &graph, error)
                                    : arf_cuda_launch(&at->space->base, launch, error);
    if (status == ARFUSE_OK && in_graph)
        status = gpu_replay(at->space, graph, error);
    if (status == ARFUSE_OK)
        status = gpu_finish(at->space, error);
    gpu_drop(at->space, graph);
    return status;
}

arfuse_status peer_all_nan(peer *at, const arf_launch *launch, bool *yes, arf_error *error)
{
    enum { WRITTEN_NAN = 0x7fff };
    static uint16_t row[PEER_TOKENS * PEER_HIDDEN];
    const arfuse_operands *operands = arf_trial_operands(at->trial);
    const size_t values = (size_t)launch->tokens * PEER_HIDDEN;
    *yes = true;
    ARF_TRY(arf_cuda_device.download(&at->cuda->base, 0, row, operands[0].norm_out,
                                     values * sizeof row[0], error));
    for (size_t i = 0; i < values; i++)
        *yes = *yes && row[i] == WRITTEN_NAN;
    return ARFUSE_OK;
}
