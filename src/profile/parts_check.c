/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/scan.h"
#include "profile/parts.h"
#include "rules/knobs.h"

#define REFUSE(...) arf_fail(error, ARFUSE_PROFILE, __VA_ARGS__)

static arfuse_status check_range(const char *path, int64_t value, int64_t low, int64_t high,
                                 arf_error *error)
{
    if (value >= low && value <= high)
        return ARFUSE_OK;
    return REFUSE("%s: %lld, expected an integer from %lld to %lld", path, (long long)value,
                  (long long)low, (long long)high);
}

arfuse_status arf_check_text(const char *path, const char *text, arf_error *error)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t length = arf_utf8_length(text, left);
        if (length == 0)
            return REFUSE("%s: bytes that are not valid UTF-8, expected a plain text", path);
        if (length == 1 && ((unsigned char)*text < 0x20 || *text == 0x7f))
            return REFUSE("%s: a control character, expected a plain text", path);
        text += length;
        left -= length;
    }
    return ARFUSE_OK;
}

arfuse_status arf_check_kernels(arf_set set, const int version[ARF_PROTOCOLS], arf_error *error)
{
    for (int i = 0; i < ARF_PROTOCOLS; i++) {
        const char *name = arf_protocol_name((arf_protocol)i);
        int known = arf_protocol_version(set, (arf_protocol)i);
        if (version[i] != 0 && known == 0)
            return REFUSE("$.kernels.%s: %d, but kernel set %s has no such protocol", name,
                          version[i], arf_set_name(set));
        if (version[i] < 0 || version[i] > known)
            return REFUSE("$.kernels.%s: %d, expected at most %d (a newer arfuse wrote this file; "
                          "this one knows version %d of that protocol's tuning)",
                          name, version[i], known, known);
    }
    return ARFUSE_OK;
}

arfuse_status arf_check_version(arf_set set, const int version[ARF_PROTOCOLS],
                                arf_protocol protocol, const char *path, arf_error *error)
{
    const char *name = arf_protocol_name(protocol);
    int has = version[protocol], needs = arf_protocol_version(set, protocol);
    if (has == 0)
        return REFUSE("%s: %s, but $.kernels has no version of it, expected \"%s\": %d", path, name,
                      name, needs);
    if (has != needs)
        return REFUSE("$.kernels.%s: %d, expected %d (the kernels here have version %d of %s's "
                      "tuning; measure again with arfuse-tune)",
                      name, has, needs, needs, name);
    return ARFUSE_OK;
}

arfuse_status arf_check_shape(const arf_shape *shape, bool published, arf_error *error)
{
    ARF_TRY(check_range("$.shape.tp_size", shape->tp_size, 1, ARF_MAX_RANKS, error));
    ARF_TRY(check_range("$.shape.hidden_size", shape->hidden_size, ARF_MIN_HIDDEN, ARF_MAX_HIDDEN,
                        error));
    if (shape->hidden_size % 8 != 0)
        return REFUSE("$.shape.hidden_size: %d, expected a multiple of 8 (a pack is 8 bf16 values)",
                      shape->hidden_size);
    ARF_TRY(check_range("$.shape.top_k", shape->top_k, 0, ARF_MAX_TOP_K, error));
    if (shape->rms_norm == ARF_EITHER && !published)
        return REFUSE("$.shape.rms_norm: null, expected true or false (null only where "
                      "evidence.method is published)");
    if (shape->residual == ARF_EITHER || shape->shared_expert == ARF_EITHER)
        return REFUSE("$.shape.%s: null, expected true or false",
                      shape->residual == ARF_EITHER ? "residual" : "shared_expert");
    return ARFUSE_OK;
}

/* How many ranks a link can mean on one GPU. The host and the model have no GPU to count. */
static arfuse_status check_sharing(const arf_device_key *device, arf_error *error)
{
    bool shared = device->link == ARF_LINK_SHARED_GPU;
    bool real = device->link == ARF_LINK_NVLINK || device->link == ARF_LINK_PCIE;
    if (shared && device->ranks_per_gpu < 2)
        return REFUSE("$.device.ranks_per_gpu: %d, expected at least 2 with link shared-gpu",
                      device->ranks_per_gpu);
    if (real && device->ranks_per_gpu != 1)
        return REFUSE("$.device.ranks_per_gpu: %d, expected 1 with link %s (ranks that share a GPU "
                      "are link shared-gpu)",
                      device->ranks_per_gpu, arf_link_name(device->link));
    return ARFUSE_OK;
}

arfuse_status arf_check_device(const arf_device_key *device, const arf_shape *shape, bool published,
                               arf_error *error)
{
    char name[ARF_NAME_TEXT], folder[ARF_NAME_TEXT + 16];
    ARF_TRY(arf_check_text("$.device.name", device->name, error));
    arf_device_name(device->name, name);
    if (strcmp(name, device->name) != 0)
        return REFUSE("$.device.name: \"%s\", expected \"%s\" (no white space at the ends, one "
                      "blank between words)",
                      device->name, name);
    arf_device_folder(device, folder);
    if (folder[0] == '-')
        return REFUSE("$.device.name: \"%s\", expected a letter or a digit in it", device->name);
    ARF_TRY(check_range("$.device.compute_capability", device->capability_major, 0,
                        ARF_MAX_CAPABILITY, error));
    ARF_TRY(check_range("$.device.compute_capability", device->capability_minor, 0,
                        ARF_MAX_CAPABILITY, error));
    ARF_TRY(check_range("$.device.sm_count", device->sm_count, 0, ARF_MAX_SM_COUNT, error));
    /* 0 switches every rule that counts SMs off, so only the host, or a source that did not say. */
    if (device->sm_count == 0 && device->link != ARF_LINK_SHM && !published)
        return REFUSE("$.device.sm_count: 0, expected at least 1 with link %s",
                      arf_link_name(device->link));
    ARF_TRY(check_range("$.device.nodes", device->nodes, 1, shape->tp_size, error));
    ARF_TRY(check_range("$.device.ranks_per_gpu", device->ranks_per_gpu, 1, shape->tp_size, error));
    return check_sharing(device, error);
}

static arfuse_status check_knobs(const arf_knob_table *table, const arf_tuning *tuning,
                                 bool published, const char *path, arf_error *error)
{
    for (int i = 0; i < table->count; i++) {
        const arf_knob *knob = &table->knob[i];
        int32_t value = tuning->value[i];
        if (value == ARF_KNOB_NULL && !(knob->nullable && published))
            return REFUSE("%s.tuning.%s: null, expected a number (null only where evidence.method "
                          "is published)",
                          path, knob->name);
        if (value != ARF_KNOB_NULL && (value < knob->low || value > knob->high))
            return REFUSE("%s.tuning.%s: %d, expected an integer from %d to %d", path, knob->name,
                          value, knob->low, knob->high);
    }
    return ARFUSE_OK;
}

arfuse_status arf_check_plan(const arf_problem *problem, const int version[ARF_PROTOCOLS],
                             arf_pattern pattern, const arf_plan *plan, bool published,
                             const char *path, arf_error *error)
{
    char reason[ARF_REASON_TEXT];
    const char *protocol = arf_protocol_name(plan->protocol);
    const arf_knob_table *table = arf_knobs(problem->set, plan->protocol, pattern);
    if (!table->supported)
        return REFUSE("%s: %s, which kernel set %s does not have for %s", path, protocol,
                      arf_set_name(problem->set), arf_pattern_name(pattern));
    ARF_TRY(arf_check_version(problem->set, version, plan->protocol, path, error));
    if (plan->protocol == ARF_SEPARATE &&
        (plan->transport != ARF_UNICAST || plan->numerics != ARF_FIXED))
        return REFUSE("%s: a separate finalize with transport or numerics of its own, expected "
                      "unicast and fixed (the allreduce route has them)",
                      path);
    if (plan->tuning_null && !published)
        return REFUSE("%s.tuning: null, expected an object (null only where evidence.method is "
                      "published)",
                      path);
    if (!plan->tuning_null)
        ARF_TRY(check_knobs(table, &plan->tuning, published, path, error));
    if (!arf_legal(problem, pattern, plan, reason)) {
        char tuning[512] = "(tuning not known)";
        if (!plan->tuning_null)
            arf_tuning_text(table, &plan->tuning, tuning, sizeof tuning);
        return REFUSE("%s: %s %s, expected a route that is legal for this shape: %s", path,
                      protocol, tuning, reason);
    }
    return ARFUSE_OK;
}
