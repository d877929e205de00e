/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints digests of what must have the same bits on every processor: calls of every host protocol
 * and of the reference, the functions of numerics over many arguments, and a profile fitted from
 * made-up samples. scripts/check-aarch64 compares the lines of two machines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "device/reference.h"
#include "fit/fit.h"
#include "profile/write.h"
#include "rules/knobs.h"
#include "support/device_case.h"

static arf_error error = ARF_ERROR_INIT;

static void must(arfuse_status status)
{
    if (status == ARFUSE_OK)
        return;
    fprintf(stderr, "digest: %s\n", error.text);
    exit(1);
}

static uint64_t hash_rows(uint64_t hash, const arf_bf16 *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = arf_hash_number(hash, rows[i]);
    return hash;
}

/* Outputs of every protocol, tuning and data kind at one shape. */
static uint64_t calls(const arf_shape *shape)
{
    enum { TOKENS = 5 };
    arf_team team;
    arf_device *device = NULL;
    arf_space *space = NULL;
    uint64_t hash = ARF_HASH_INIT;
    must(case_host(NULL, shape->tp_size, &team, &device, &error));
    must(case_space(device, shape, TOKENS, 300, &space, &error));
    for (int kind = 0; kind < 2; kind++) {
        arf_trial *trial = NULL;
        must(arf_trial_create(device, shape, TOKENS, (arf_trial_kind)kind, 11, &trial, &error));
        for (int pattern = 0; pattern < ARF_PATTERNS; pattern++)
            for (int protocol = 0; protocol < (pattern ? ARF_PROTOCOLS : ARF_SEPARATE);
                 protocol++) {
                must(case_call(space, trial, (arf_pattern)pattern, (arf_protocol)protocol,
                               protocol % CASE_VARIANTS, TOKENS, &error));
                const arfuse_operands *out = arf_trial_operands(trial);
                size_t values = (size_t)TOKENS * (size_t)shape->hidden_size;
                for (int rank = 0; rank < shape->tp_size; rank++) {
                    hash = hash_rows(hash, out[rank].residual_out, values);
                    hash = hash_rows(hash, out[rank].norm_out, values);
                }
            }
        arf_trial_destroy(trial);
    }
    device->ops->space_destroy(space);
    arf_device_close(device);
    return hash;
}

static uint64_t arithmetic(void)
{
    uint64_t hash = ARF_HASH_INIT, state = 5;
    arf_float_state modes = arf_float_pin();
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = arf_random_next(&state);
        float a = arf_float_of_bits((uint32_t)bits), b = arf_float_of_bits((uint32_t)(bits >> 32));
        float terms[5] = {a, b, a * b, a - b, 1.0f};
        hash = arf_hash_number(hash, arf_float_to_bf16(a));
        hash = arf_hash_number(hash, arf_float_to_bf16(arf_tree_sum(terms, 1 + i % 5)));
        hash =
            arf_hash_number(hash, arf_bits_of_float(arf_inverse_rms(a, 8 + 8 * (i % 1000), 1e-6f)));
        hash = arf_hash_number(hash, arf_normalised((arf_bf16)bits, a, (arf_bf16)(bits >> 16), 1));
    }
    arf_float_restore(modes);
    return hash;
}

/* The text of a profile that came of random times: logarithms, medians, bootstrap, printing. */
static uint64_t fitted(void)
{
    arf_shape shape = {8, 6144, 0, ARF_ON, ARF_ON, ARF_OFF};
    arf_samples_header header = {
        .set = ARF_SET_HOST,
        .shape = shape,
        .device = {.name = "host", .link = ARF_LINK_SHM, .nodes = 1, .ranks_per_gpu = 1},
        .tool = "digest"};
    arf_fit_options options = ARF_FIT_OPTIONS_INIT;
    arf_profile *profile = NULL;
    arf_text text = {0};
    uint64_t state = 3;
    for (int i = 0; i < ARF_PROTOCOLS; i++)
        header.version[i] = arf_protocol_version(header.set, (arf_protocol)i);
    arf_samples *samples = arf_samples_new(&header);
    for (int64_t tokens = 1; samples != NULL && tokens <= 512; tokens *= 2)
        for (int protocol = 0; protocol < ARF_SEPARATE; protocol++)
            for (int variant = 0; variant < CASE_VARIANTS; variant++) {
                double us[16];
                double floor = 3 + 4 * protocol, slope = 0.5 / (1 + protocol) + 0.01 * variant;
                for (int round = 0; round < 16; round++)
                    us[round] =
                        (floor + slope * (double)tokens) * (1 + 0.01 * arf_random_normal(&state));
                arf_sample sample = {.pattern = ARF_ALLREDUCE,
                                     .tokens = tokens,
                                     .plan = case_plan(header.set, &shape, ARF_ALLREDUCE,
                                                       (arf_protocol)protocol, variant),
                                     .calls = 10,
                                     .rounds = 16,
                                     .us = us};
                must(arf_samples_add(samples, &sample, &error));
            }
    must(arf_fit_profile(samples, &options, &profile, &error));
    must(arf_profile_print(profile, &text, &error));
    uint64_t hash = arf_hash(ARF_HASH_INIT, text.data, text.bytes);
    arf_text_free(&text);
    arf_profile_free(profile);
    arf_samples_free(samples);
    return hash;
}

int main(void)
{
    static const arf_shape shapes[] = {{2, 8, 1, ARF_ON, ARF_ON, ARF_ON},
                                       {3, 104, 4, ARF_ON, ARF_ON, ARF_OFF},
                                       {4, 2880, 6, ARF_ON, ARF_ON, ARF_ON},
                                       {8, 1024, 10, ARF_ON, ARF_ON, ARF_ON}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        printf("calls R %d H %d %016llx\n", shapes[i].tp_size, shapes[i].hidden_size,
               (unsigned long long)calls(&shapes[i]));
    printf("arithmetic %016llx\n", (unsigned long long)arithmetic());
    printf("fitted %016llx\n", (unsigned long long)fitted());
    return 0;
}
