/* SPDX-License-Identifier: Apache-2.0 */
#include "support/recorded_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/recording_device.h"

static const char *const sites[] = {"attn_out", "moe_out"};
uint16_t recorded_tensor[6][RECORDED_MOST * RECORDED_HIDDEN] __attribute__((aligned(64)));
int32_t recorded_indices[RECORDED_MOST * RECORDED_TOP_K];

arfuse_options recorded_options(void)
{
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    options.hidden_size = RECORDED_HIDDEN;
    options.top_k = RECORDED_TOP_K;
    options.capacity = 48;
    options.sites = sites;
    options.site_count = 2;
    options.routes[0] = options.routes[1] = ARFUSE_ROUTES_DEFAULT;
    return options;
}

arfuse_workspace *recorded_open(const arfuse_options *options)
{
    arfuse_workspace *workspace = NULL;
    arf_error error = ARF_ERROR_INIT;
    if (arf_workspace_make(NULL, options, recording_open, &workspace, &error) != ARFUSE_OK)
        fail_msg("%s", error.text);
    return workspace;
}

arfuse_workspace *recorded_usual(void)
{
    const arfuse_options options = recorded_options();
    recording_reset();
    return recorded_open(&options);
}

arfuse_operands recorded_operands(void)
{
    arfuse_operands o = ARFUSE_OPERANDS_INIT;
    o.input = recorded_tensor[0];
    o.routed = recorded_tensor[1];
    o.routed_rows = RECORDED_MOST;
    o.weights = recorded_tensor[2];
    o.indices = recorded_indices;
    o.shared = recorded_tensor[3];
    o.residual = o.residual_out = recorded_tensor[4];
    o.gamma = recorded_tensor[2];
    o.norm_out = recorded_tensor[5];
    return o;
}
