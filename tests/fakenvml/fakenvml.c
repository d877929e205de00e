/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnvidia-ml: one GPU, GPU-00000000-..., whose clock and whose reasons the test
 * sets, and that has FAKENVML_SMS multiprocessors (of the environment; not told without).
 * Signatures by the NVML API reference.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))
enum { CORES_PER_SM = 128 };
enum { SUCCESS = 0, NOT_FOUND = 6, NOT_SUPPORTED = 3, CLOCK_SM = 1 };

SHOWN int nvmlInit_v2(void);
SHOWN int nvmlShutdown(void);
SHOWN int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
SHOWN int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
SHOWN int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons);
SHOWN int nvmlDeviceGetNumGpuCores(void *device, unsigned *cores);
SHOWN void fakenvml_set(unsigned mhz, unsigned long long reasons);

static unsigned clock_mhz; /* 0: the question is not supported */
static unsigned long long held;

void fakenvml_set(unsigned mhz, unsigned long long reasons)
{
    clock_mhz = mhz;
    held = reasons;
}

int nvmlInit_v2(void)
{
    return SUCCESS;
}
int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    if (strncmp(uuid, "GPU-00000000-", 13) != 0)
        return NOT_FOUND;
    *device = &clock_mhz;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    if (device != &clock_mhz || clock_mhz == 0)
        return NOT_SUPPORTED;
    *mhz = type == CLOCK_SM ? clock_mhz : 1;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons)
{
    if (device != &clock_mhz || clock_mhz == 0)
        return NOT_SUPPORTED;
    *reasons = held;
    return SUCCESS;
}

int nvmlDeviceGetNumGpuCores(void *device, unsigned *cores)
{
    const char *sms = getenv("FAKENVML_SMS");
    if (device != &clock_mhz || sms == NULL)
        return NOT_SUPPORTED;
    *cores = (unsigned)atoi(sms) * CORES_PER_SM;
    return SUCCESS;
}
