/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/clocks.h"

#include <stdio.h>

/* More than this and times of different points do not compare. */
#define MOST_CHANGE 0.05

void arf_clocks_note(arf_clock_watch *watch, arf_clocks now)
{
    watch->now = now;
    if (now.mhz <= 0)
        return;
    if (watch->readings == 0 || now.mhz < watch->least_mhz)
        watch->least_mhz = now.mhz;
    if (now.mhz > watch->most_mhz)
        watch->most_mhz = now.mhz;
    watch->readings++;
    watch->throttled += now.throttle != 0;
    watch->throttle |= now.throttle;
}

arfuse_status arf_clocks_read(arf_clock_watch *watch, arf_device *device, arf_error *error)
{
    arf_clocks own = {0}, all[ARF_MAX_RANKS], joined = {0};
    if (device->ops->clocks == NULL) /* the same on all ranks */
        return ARFUSE_OK;
    device->ops->clocks(device, &own);
    ARF_TRY(arf_team_allgather(device->team, &own, all, sizeof own, error));
    for (int p = 0; p < device->team->bootstrap.size; p++)
        joined = arf_clocks_join(joined, all[p]);
    arf_clocks_note(watch, joined);
    return ARFUSE_OK;
}

void arf_clocks_trouble(const arf_clock_watch *watch, char *text, size_t size)
{
    const bool moved =
        watch->readings > 0 && watch->most_mhz > (int)((1 + MOST_CHANGE) * watch->least_mhz + 0.5);
    char why[64];
    text[0] = '\0';
    arf_throttle_text(watch->throttle, why, sizeof why);
    if (watch->throttled > 0)
        snprintf(
            text, size,
            "clocks were held down at %d of %d points (%s), between %d and %d MHz: these times "
            "are those of a machine that is kept from its speed",
            watch->throttled, watch->readings, why, watch->least_mhz, watch->most_mhz);
    else if (moved)
        snprintf(text, size,
                 "clocks moved between %d and %d MHz: times of different M do not compare",
                 watch->least_mhz, watch->most_mhz);
}
