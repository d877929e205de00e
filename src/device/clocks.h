/* SPDX-License-Identifier: Apache-2.0 */
/* What a device says of its clocks: for whoever reads times. No decision depends on it. */
#ifndef ARF_DEVICE_CLOCKS_H
#define ARF_DEVICE_CLOCKS_H

#include <stddef.h>

/* Why a clock is held down: bits. */
enum {
    ARF_THROTTLE_POWER = 1,    /* a power cap, or the power supply */
    ARF_THROTTLE_HEAT = 2,     /* a temperature */
    ARF_THROTTLE_HARDWARE = 4, /* the hardware's own protection, without saying which */
    ARF_THROTTLE_SYNC = 8,     /* GPUs of a group follow the slowest */
    ARF_THROTTLES = 4          /* how many */
};

typedef struct arf_clocks {
    int mhz;           /* of the multiprocessors; 0: unknown */
    unsigned throttle; /* 0: none, or unknown */
} arf_clocks;

/* "power, heat"; "" for none. */
void arf_throttle_text(unsigned throttle, char *text, size_t size);

/* Of two GPUs of a team: the slower clock, and what holds either. */
arf_clocks arf_clocks_join(arf_clocks a, arf_clocks b);

#endif
