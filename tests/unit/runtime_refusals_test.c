/* SPDX-License-Identifier: Apache-2.0 */
/* Operands and calls that are refused, by name, before anything is launched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/recorded_case.h"
#include "support/recording_device.h"

typedef struct bad_operand {
    arfuse_pattern pattern;
    size_t offset;
    const void *value;
    const char *part;
} bad_operand;

static void operands_are_refused_by_name(void **state)
{
    (void)state;
    arfuse_workspace *workspace = recorded_usual();
#define AT(member) offsetof(arfuse_operands, member)
#define OFF(pointer, bytes) ((const char *)(pointer) + (bytes))
    const bad_operand bad[] = {
        {ARFUSE_ALLREDUCE, AT(input), NULL, "rank 0: operands.input is NULL"},
        {ARFUSE_ALLREDUCE, AT(input), OFF(recorded_tensor[0], 4), "operands.input is 0x"},
        {ARFUSE_ALLREDUCE, AT(residual), NULL, "operands.residual is NULL"},
        {ARFUSE_ALLREDUCE, AT(residual), OFF(recorded_tensor[4], 16),
         "residual_out overlaps operands.resi"},
        {ARFUSE_ALLREDUCE, AT(gamma), NULL, "operands.gamma is NULL"},
        {ARFUSE_ALLREDUCE, AT(gamma), OFF(recorded_tensor[2], 8), "aligned to 16 bytes"},
        {ARFUSE_ALLREDUCE, AT(norm_out), NULL, "operands.norm_out is NULL"},
        {ARFUSE_ALLREDUCE, AT(norm_out), OFF(recorded_tensor[0], RECORDED_HIDDEN * 2),
         "norm_out overlaps operands."},
        {ARFUSE_ALLREDUCE, AT(norm_out), recorded_tensor[4],
         "operands.norm_out overlaps operands.residual"},
        {ARFUSE_ALLREDUCE, AT(residual_out), recorded_tensor[0],
         "residual_out overlaps operands.input"},
        {ARFUSE_ALLREDUCE, AT(residual_out), recorded_tensor[5],
         "norm_out overlaps operands.residual_out"},
        {ARFUSE_FINALIZE, AT(routed), NULL, "operands.routed is NULL"},
        {ARFUSE_FINALIZE, AT(weights), NULL, "operands.weights is NULL"},
        {ARFUSE_FINALIZE, AT(weights), OFF(recorded_tensor[2], 1), "operands.weights is 0x"},
        {ARFUSE_FINALIZE, AT(indices), NULL, "operands.indices is NULL"},
        {ARFUSE_FINALIZE, AT(indices), OFF(recorded_indices, 2), "aligned to 4 bytes"},
        {ARFUSE_FINALIZE, AT(shared), NULL, "operands.shared is NULL"},
        {ARFUSE_FINALIZE, AT(norm_out), recorded_tensor[1], "norm_out overlaps operands.routed"},
        {ARFUSE_FINALIZE, AT(routed_rows), (const void *)-1, "operands.routed_rows is -1"},
    };
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = 3;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arfuse_operands operands = recorded_operands();
        arfuse_error error = ARFUSE_ERROR_INIT;
        memcpy((char *)&operands + bad[i].offset, &bad[i].value, sizeof(void *));
        arfuse_status status = (bad[i].pattern == ARFUSE_FINALIZE
                                    ? arfuse_finalize
                                    : arfuse_allreduce)(workspace, &call, &operands, &error);
        if (status != ARFUSE_USAGE || strstr(error.text, bad[i].part) == NULL)
            fail_msg("case %zu: %d, %s", i, status, error.text);
    }
    assert_int_equal(recorded.launches, 0);

    /* What is allowed: outputs in place, one of them left out, no tensor at all for no
     * tokens. */
    arfuse_operands operands = recorded_operands();
    operands.norm_out = recorded_tensor[0];
    operands.residual_out = NULL;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, NULL), ARFUSE_OK);
    operands = (arfuse_operands)ARFUSE_OPERANDS_INIT;
    call.tokens = 0;
    assert_int_equal(arfuse_allreduce(workspace, &call, &operands, NULL), ARFUSE_OK);
    assert_int_equal(arfuse_finalize(workspace, &call, &operands, NULL), ARFUSE_OK);
    arfuse_workspace_destroy(&workspace, NULL);
}

/* An output just before a tensor, just behind it, and a pack nearer from either side. */
static void tensors_may_touch_but_not_overlap(void **state)
{
    (void)state;
    enum { TOKENS = 3, ROW = RECORDED_HIDDEN * 2, ROWS = TOKENS * ROW, PACK = 16, ROUTED = 5 };
    static char place[3 * ROUTED * ROW] __attribute__((aligned(64)));
    const struct {
        arfuse_pattern pattern;
        size_t tensor, output;
        int bytes; /* of the tensor */
    } pair[] = {
        {ARFUSE_ALLREDUCE, AT(input), AT(residual_out), ROWS},
        {ARFUSE_ALLREDUCE, AT(input), AT(norm_out), ROWS},
        {ARFUSE_ALLREDUCE, AT(residual), AT(residual_out), ROWS},
        {ARFUSE_ALLREDUCE, AT(residual), AT(norm_out), ROWS},
        {ARFUSE_ALLREDUCE, AT(gamma), AT(residual_out), ROW},
        {ARFUSE_ALLREDUCE, AT(gamma), AT(norm_out), ROW},
        {ARFUSE_ALLREDUCE, AT(residual_out), AT(norm_out), ROWS},
        {ARFUSE_FINALIZE, AT(routed), AT(residual_out), ROUTED * ROW},
        {ARFUSE_FINALIZE, AT(weights), AT(norm_out), PACK}, /* whole packs: outputs are aligned */
        {ARFUSE_FINALIZE, AT(indices), AT(residual_out), 2 * PACK},
        {ARFUSE_FINALIZE, AT(shared), AT(norm_out), ROWS},
    };
    arfuse_workspace *workspace = recorded_usual();
    arfuse_call call = ARFUSE_CALL_INIT;
    call.tokens = TOKENS;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        char *tensor = place + ROUTED * ROW;
        char *const output[] = {tensor - ROWS, tensor + pair[i].bytes, tensor - ROWS + PACK,
                                tensor + pair[i].bytes - PACK};
        for (int o = 0; o < 4; o++) {
            arfuse_operands operands = recorded_operands();
            operands.routed_rows = ROUTED;
            memcpy((char *)&operands + pair[i].tensor, &tensor, sizeof tensor);
            memcpy((char *)&operands + pair[i].output, &output[o], sizeof output[o]);
            const arfuse_status status =
                (pair[i].pattern == ARFUSE_FINALIZE ? arfuse_finalize : arfuse_allreduce)(
                    workspace, &call, &operands, NULL);
            if (status != (o < 2 ? ARFUSE_OK : ARFUSE_USAGE))
                fail_msg("pair %zu, output %d: %d", i, o, status);
        }
    }
    arfuse_workspace_destroy(&workspace, NULL);
}

static void calls_are_refused_by_name(void **state)
{
    (void)state;
    arfuse_workspace *workspace = recorded_usual();
    const arfuse_operands operands = recorded_operands();
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_call call;
#define REFUSED(change, part)                                                                  \
    do {                                                                                       \
        call = (arfuse_call)ARFUSE_CALL_INIT;                                                  \
        call.tokens = 1;                                                                       \
        change;                                                                                \
        assert_int_equal(arfuse_allreduce(workspace, &call, &operands, &error), ARFUSE_USAGE); \
        if (strstr(error.text, part) == NULL)                                                  \
            fail_msg("\"%s\" does not say \"%s\"", error.text, part);                          \
    } while (0)
    REFUSED(call.tokens = -1, "call.tokens is -1, expected 0 to 1048576");
    REFUSED(call.tokens = INT64_C(1) << 40, "call.tokens is 1099511627776");
    REFUSED(call.epsilon = -1, "epsilon -1");
    REFUSED(call.epsilon = (float)(1e308 * 10), "epsilon inf");
    REFUSED(call.weight_bias = (float)(1e308 * 10), "weight_bias inf");
    REFUSED(call.site = 2, "call.site is 2");
    REFUSED(call.site = -2, "call.site is -2");
    REFUSED(call.route = -3, "call.route is -3");
    REFUSED(call.fallback = (arfuse_fallback)7, "call.fallback is 7");
    REFUSED(call.struct_size = 8, "call.struct_size is 8");
    arfuse_operands small = operands;
    small.struct_size = 16;
    call = (arfuse_call)ARFUSE_CALL_INIT;
    assert_int_equal(arfuse_allreduce(workspace, &call, &small, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "operands.struct_size is 16"));
    assert_int_equal(arfuse_allreduce(workspace, NULL, &operands, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_allreduce(workspace, &call, NULL, &error), ARFUSE_USAGE);
    assert_int_equal(arfuse_allreduce(NULL, &call, &operands, &error), ARFUSE_USAGE);
    assert_int_equal(recorded.launches, 0);
    arfuse_workspace_destroy(&workspace, NULL);

    arfuse_options options = recorded_options();
    options.sites = NULL;
    options.site_count = 0;
    workspace = recorded_open(&options);
    REFUSED(call.site = 0, "call.site is 0, expected ARFUSE_SITE_NONE (-1): options.sites names");
    arfuse_workspace_destroy(&workspace, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_are_refused_by_name),
        cmocka_unit_test(tensors_may_touch_but_not_overlap),
        cmocka_unit_test(calls_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("runtime_refusals", tests, NULL, NULL);
}
