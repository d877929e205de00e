/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tuner.h"

#include <stdio.h>
#include <string.h>

#include "tune/voice.h"

/* The host device runs on whatever machine builds the project, where a minute is much; a GPU node
 * is taken for tuning on purpose. */
double arf_tuner_default_budget(arf_link link)
{
    return link == ARF_LINK_SHM ? 60 : 300;
}

void arf_tuner_device_text(const arf_device_key *key, char *text, size_t size)
{
    if (key->sm_count > 0)
        snprintf(text, size, "%s (%d.%d, %d SMs) on %s", key->name, key->capability_major,
                 key->capability_minor, key->sm_count, arf_link_name(key->link));
    else
        snprintf(text, size, "%s on %s", key->name, arf_link_name(key->link));
}

/* What only a GPU has is refused elsewhere, so that nobody believes it did something. */
static arfuse_status judge_device(const arf_tune_options *o, const arf_device *device,
                                  arf_error *error)
{
    const bool gpu = device->ops != &arf_host_device && device->ops != &arf_model_device;
    if (o->multicast && !gpu)
        return arf_fail(error, ARFUSE_USAGE, "--multicast on: the %s device has no multicast",
                        device->ops->name);
    if (o->gpu_sharing && !gpu)
        return arf_fail(error, ARFUSE_USAGE, "--gpu-sharing: the %s device has no GPU to share",
                        device->ops->name);
    /* Every task here ends in times, and a probe says what would stop one. */
    const char *untimed = device->ops->untimed != NULL ? device->ops->untimed(device) : NULL;
    if (untimed != NULL)
        return arf_fail(error, ARFUSE_HARDWARE, "times are refused: %s", untimed);
    return ARFUSE_OK;
}

arfuse_status arf_tuner_open(arf_tuner *tuner, const arf_tune_options *options, arf_group *group,
                             arf_error *error)
{
    *tuner = (arf_tuner){.options = options, .group = group, .log = arf_voice_log()};
    arfuse_bootstrap bootstrap = arf_group_bootstrap(group);
    ARF_TRY(arf_place(options->tp_size, group->size, &tuner->placement, error));
    ARF_TRY(
        arf_team_create(&bootstrap, tuner->placement.ranks_of[group->rank], &tuner->team, error));
    ARF_TRY(arf_team_agree(&tuner->team, "options", arf_options_digest(options), error));
    const arf_device_options device = {.spec = options->device,
                                       .cuda_ordinal = -1,
                                       .gpu_sharing = options->gpu_sharing,
                                       .multicast = options->multicast,
                                       .numerics = options->any_numerics ? ARF_LIBRARY : ARF_FIXED,
                                       .command = options->command,
                                       .log = &tuner->log};
    ARF_TRY(arf_device_open(&device, &tuner->team, &tuner->device, error));
    if (judge_device(options, tuner->device, error) != ARFUSE_OK) {
        arf_tuner_close(tuner);
        return error->status;
    }
    tuner->device->ops->describe(tuner->device, &tuner->key);
    tuner->device->ops->evidence(tuner->device, &tuner->evidence);
    tuner->started = tuner->device->ops->now(tuner->device);
    tuner->budget_seconds = options->budget_seconds > 0 ? options->budget_seconds
                                                        : arf_tuner_default_budget(tuner->key.link);
    return ARFUSE_OK;
}

void arf_tuner_close(arf_tuner *tuner)
{
    arf_device_close(tuner->device);
    tuner->device = NULL;
}

arfuse_status arf_tuner_seconds(const arf_tuner *tuner, double *seconds, arf_error *error)
{
    double all[ARF_MAX_RANKS];
    double own = tuner->device->ops->now(tuner->device) - tuner->started;
    ARF_TRY(arf_team_allgather(&tuner->team, &own, all, sizeof own, error));
    *seconds = all[0];
    return ARFUSE_OK;
}

arfuse_status arf_tuner_decide(const arf_tuner *tuner, int64_t *number, arf_error *error)
{
    int64_t all[ARF_MAX_RANKS];
    ARF_TRY(arf_team_allgather(&tuner->team, number, all, sizeof *number, error));
    *number = all[0];
    return ARFUSE_OK;
}

void arf_tuner_greet(const arf_tuner *tuner)
{
    char device[160], placement[256];
    arf_tuner_device_text(&tuner->key, device, sizeof device);
    arf_placement_text(&tuner->placement, placement, sizeof placement);
    arf_voice_note("device %s, %s, budget %g s", device, placement, tuner->budget_seconds);
    int processes, cores;
    arf_group_cores(tuner->group, &processes, &cores);
    const int ranks = tuner->placement.tp_size * processes / tuner->placement.processes;
    if (tuner->key.link == ARF_LINK_SHM && ranks > cores)
        arf_voice_warn("%d ranks share %d core%s of this node: times of the host device are "
                       "unreliable",
                       ranks, cores, cores == 1 ? "" : "s");
}
