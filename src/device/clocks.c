/* SPDX-License-Identifier: Apache-2.0 */
#include "device/clocks.h"

#include <stdio.h>

void arf_throttle_text(unsigned throttle, char *text, size_t size)
{
    static const char *const names[ARF_THROTTLES] = {"power", "heat", "hardware", "sync"};
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < ARF_THROTTLES && used < size; i++)
        if ((throttle & 1u << i) != 0)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", names[i]);
}

arf_clocks arf_clocks_join(arf_clocks a, arf_clocks b)
{
    const int lower = a.mhz < b.mhz ? a.mhz : b.mhz;
    return (arf_clocks){.mhz = lower > 0 ? lower : a.mhz + b.mhz, /* an unknown one is 0 */
                        .throttle = a.throttle | b.throttle};
}
