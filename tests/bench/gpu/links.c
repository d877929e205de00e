/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/gpu/links.h"

#include <math.h>
#include <stdio.h>

/* Every process has a GPU of its own, and there are several. */
static bool has_links(const arf_tuner *tuner)
{
    return tuner->device->ops != &arf_host_device && tuner->device->ops != &arf_model_device &&
           tuner->team.bootstrap.size > 1 && tuner->key.link != ARF_LINK_SHARED_GPU;
}

arfuse_status links_measure(const arf_tuner *tuner, link_speed *speed, arf_error *error)
{
    *speed = (link_speed){0};
    if (!has_links(tuner)) {
        snprintf(speed->why, sizeof speed->why, "no rank has a GPU of its own");
        return ARFUSE_OK;
    }
#ifdef ARF_CUDA
    double own = 0, all[ARF_MAX_RANKS];
    arf_error failed = ARF_ERROR_INIT;
    if (link_speed_cuda(tuner, &own, &failed) != ARFUSE_OK) { /* voted: so on all ranks */
        snprintf(speed->why, sizeof speed->why, "%.150s", failed.text);
        return ARFUSE_OK;
    }
    ARF_TRY(arf_team_allgather(&tuner->team, &own, all, sizeof own, error));
    speed->slowest = speed->fastest = all[0];
    for (int p = 1; p < tuner->team.bootstrap.size; p++) {
        speed->slowest = fmin(speed->slowest, all[p]);
        speed->fastest = fmax(speed->fastest, all[p]);
    }
#else
    (void)error;
#endif
    return ARFUSE_OK;
}

double links_us(const link_speed *speed, double bytes)
{
    return speed->slowest > 0 ? bytes / speed->slowest : NAN;
}
