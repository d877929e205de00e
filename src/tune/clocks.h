/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of a run: read behind every point, kept with its samples, told when they moved. */
#ifndef ARF_TUNE_CLOCKS_H
#define ARF_TUNE_CLOCKS_H

#include "device/clocks.h"
#include "device/device.h"

typedef struct arf_clock_watch {
    arf_clocks now;          /* of the last reading, all ranks together */
    int readings, throttled; /* that told a clock; at which one was held down */
    int least_mhz, most_mhz;
    unsigned throttle; /* of all readings */
} arf_clock_watch;

/* Collective; nothing where the device does not tell. */
arfuse_status arf_clocks_read(arf_clock_watch *watch, arf_device *device, arf_error *error);

/* Takes a reading in; pure. */
void arf_clocks_note(arf_clock_watch *watch, arf_clocks now);

/* What is wrong with the clocks of a run: one moved by more than 5 %, or was held down. "": all is
 * well, or unknown. */
void arf_clocks_trouble(const arf_clock_watch *watch, char *text, size_t size);

#endif
