/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

/* An NVIDIA GPU shows as /dev/nvidia0, nvidia1, ...; the control node alone means a driver without
 * a GPU. A node in a container may be any of them, so all are looked for. */
static bool nvidia_node_exists(void)
{
    glob_t found;
    bool exists = glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0;
    if (exists)
        globfree(&found);
    return exists;
}

/* Which implementation a spec means here. */
static arfuse_status choose(const char *spec, const arf_device_ops **ops, arf_error *error)
{
    bool automatic = spec == NULL || strcmp(spec, "auto") == 0;
    bool cuda = automatic ? nvidia_node_exists() : strcmp(spec, "cuda") == 0;
#ifdef ARF_CUDA
    if (cuda) { /* a broken driver is then an error of open, not a silent change to host */
        *ops = &arf_cuda_device;
        return ARFUSE_OK;
    }
#else
    if (cuda)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "device cuda: %sthis build has no CUDA device; ask for the device \"host\"",
                        automatic ? "taken because an NVIDIA device node exists, but " : "");
#endif
    if (automatic || strcmp(spec, "host") == 0) {
        *ops = &arf_host_device;
        return ARFUSE_OK;
    }
    if (strncmp(spec, "model:", strlen("model:")) == 0) {
        *ops = &arf_model_device;
        return ARFUSE_OK;
    }
    return arf_fail(error, ARFUSE_USAGE,
                    "device \"%s\": expected auto, cuda, host, model:default or model:FILE", spec);
}

arfuse_status arf_device_open(const arf_device_options *options, const arf_team *team,
                              arf_device **device, arf_error *error)
{
    const arf_device_ops *ops = NULL;
    ARF_TRY(arf_team_vote(team, choose(options->spec, &ops, error), error));

    /* "auto" looks at this machine, so ranks on unequal machines could open unequal devices. */
    char own[16] = {0}, all[ARF_MAX_RANKS][16];
    snprintf(own, sizeof own, "%s", ops->name);
    ARF_TRY(arf_team_allgather(team, own, all, sizeof own, error));
    for (int process = 1; process < team->bootstrap.size; process++)
        if (strcmp(all[process], all[0]) != 0)
            return arf_fail(error, ARFUSE_DISAGREE,
                            "device: process 0 takes \"%s\" and process %d takes \"%s\"; name one "
                            "device for all of them",
                            all[0], process, all[process]);

    *device = NULL;
    return ops->open(options, team, device, error);
}

void arf_device_close(arf_device *device)
{
    if (device != NULL)
        device->ops->close(device);
}

arf_set arf_device_set(const arf_device *device)
{
    /* The model stands for a GPU: it prices the plans that a GPU would run. */
    return device->ops == &arf_host_device ? ARF_SET_HOST : ARF_SET_ARFUSE;
}

arf_problem arf_device_problem(const arf_device *device, const arf_shape *shape)
{
    arf_device_key key;
    device->ops->describe(device, &key);
    return (arf_problem){
        .set = arf_device_set(device),
        .shape = *shape,
        .sm_count = key.sm_count,
        .lacks = device->ops->lacks,
        .no_library = device->ops->no_library != NULL ? device->ops->no_library(device) : NULL};
}
