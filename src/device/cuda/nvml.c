/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* From the NVML API reference (nvml.h of CUDA 12): the few names that are used here. */
typedef void *nvml_device;
enum { SUCCESS = 0, P2P_STATUS_OK = 0, P2P_CAPS_READ = 0, P2P_CAPS_WRITE = 1, P2P_CAPS_NVLINK = 2 };
enum { FABRIC_COMPLETED = 3 };
enum { CLOCK_SM = 1 };
/* Idle, clocks that an administrator set and displays hold nothing down that would run. */
enum {
    REASON_POWER_CAP = 0x4,
    REASON_HARDWARE = 0x8,
    REASON_SYNC = 0x10,
    REASON_HEAT = 0x20,
    REASON_HARDWARE_HEAT = 0x40,
    REASON_POWER_BRAKE = 0x80
};
typedef struct fabric_info { /* nvmlGpuFabricInfo_t */
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
} fabric_info;

/* Cores of an SM since compute capability 8.6 and of 9.x and 10.x: 128 (CUDA programming guide,
 * arithmetic throughput). The kernels need 9.0. */
#define CORES_PER_SM 128

static void *function(const arf_nvml *nvml, const char *name)
{
    return nvml->library != NULL ? dlsym(nvml->library, name) : NULL;
}

void arf_nvml_open(arf_nvml *nvml)
{
    int (*init)(void);
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&init = function(nvml, "nvmlInit_v2");
    if (nvml->library != NULL && (init == NULL || init() != SUCCESS)) {
        dlclose(nvml->library);
        nvml->library = NULL;
    }
}

void arf_nvml_close(arf_nvml *nvml)
{
    int (*shutdown)(void);
    *(void **)&shutdown = function(nvml, "nvmlShutdown");
    if (shutdown != NULL)
        shutdown();
    if (nvml->library != NULL)
        dlclose(nvml->library);
    nvml->library = NULL;
}

void arf_uuid_text(const CUuuid *uuid, char text[ARF_UUID_TEXT])
{
    size_t used = (size_t)snprintf(text, ARF_UUID_TEXT, "GPU-");
    for (int i = 0; i < 16; i++)
        used += (size_t)snprintf(text + used, ARF_UUID_TEXT - used, "%s%02x",
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                 (unsigned char)uuid->bytes[i]);
}

static bool find(const arf_nvml *nvml, const CUuuid *uuid, nvml_device *device)
{
    int (*by_uuid)(const char *, nvml_device *);
    char text[ARF_UUID_TEXT];
    arf_uuid_text(uuid, text);
    *(void **)&by_uuid = function(nvml, "nvmlDeviceGetHandleByUUID");
    return by_uuid != NULL && by_uuid(text, device) == SUCCESS;
}

int arf_nvml_sm_count(const arf_nvml *nvml, const CUuuid *gpu, int capability_major)
{
    int (*cores)(nvml_device, unsigned *);
    nvml_device device;
    unsigned count = 0;
    *(void **)&cores = function(nvml, "nvmlDeviceGetNumGpuCores");
    if (capability_major < 9 || cores == NULL || !find(nvml, gpu, &device) ||
        cores(device, &count) != SUCCESS)
        return 0;
    return (int)(count / CORES_PER_SM);
}

bool arf_nvml_fabric(const arf_nvml *nvml, const CUuuid *gpu, arf_fabric_domain *domain)
{
    int (*info)(nvml_device, fabric_info *);
    nvml_device device;
    fabric_info found = {{0}, 0, 0, 0};
    *(void **)&info = function(nvml, "nvmlDeviceGetGpuFabricInfo");
    if (info == NULL || !find(nvml, gpu, &device) || info(device, &found) != SUCCESS ||
        found.state != FABRIC_COMPLETED || found.status != SUCCESS)
        return false;
    memcpy(domain->cluster, found.cluster, sizeof domain->cluster);
    domain->clique = found.clique;
    return true;
}

static int peer_status(const arf_nvml *nvml, const CUuuid *from, const CUuuid *to, int what)
{
    int (*ask)(nvml_device, nvml_device, int, int *);
    nvml_device a, b;
    int status = -1;
    *(void **)&ask = function(nvml, "nvmlDeviceGetP2PStatus");
    if (ask == NULL || !find(nvml, from, &a) || !find(nvml, to, &b) ||
        ask(a, b, what, &status) != SUCCESS)
        return -1;
    return status == P2P_STATUS_OK;
}

int arf_nvml_peer_access(const arf_nvml *nvml, const CUuuid *from, const CUuuid *to)
{
    int reads = peer_status(nvml, from, to, P2P_CAPS_READ);
    int writes = peer_status(nvml, from, to, P2P_CAPS_WRITE);
    return reads < 0 || writes < 0 ? -1 : reads && writes;
}

int arf_nvml_peer_nvlink(const arf_nvml *nvml, const CUuuid *from, const CUuuid *to)
{
    return peer_status(nvml, from, to, P2P_CAPS_NVLINK);
}

static unsigned throttle_of(unsigned long long reasons)
{
    unsigned throttle = 0;
    if ((reasons & (REASON_POWER_CAP | REASON_POWER_BRAKE)) != 0)
        throttle |= ARF_THROTTLE_POWER;
    if ((reasons & (REASON_HEAT | REASON_HARDWARE_HEAT)) != 0)
        throttle |= ARF_THROTTLE_HEAT;
    if ((reasons & REASON_HARDWARE) != 0 && throttle == 0) /* else it says which */
        throttle |= ARF_THROTTLE_HARDWARE;
    if ((reasons & REASON_SYNC) != 0)
        throttle |= ARF_THROTTLE_SYNC;
    return throttle;
}

arf_clocks arf_nvml_clocks(const arf_nvml *nvml, const CUuuid *gpu)
{
    int (*clock)(nvml_device, int, unsigned *);
    int (*why)(nvml_device, unsigned long long *);
    nvml_device device;
    unsigned mhz = 0;
    unsigned long long reasons = 0;
    arf_clocks clocks = {0, 0};
    *(void **)&clock = function(nvml, "nvmlDeviceGetClockInfo");
    *(void **)&why = function(nvml, "nvmlDeviceGetCurrentClocksEventReasons");
    if (why == NULL) /* its name in drivers before 535 */
        *(void **)&why = function(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (clock == NULL || !find(nvml, gpu, &device))
        return clocks;
    if (clock(device, CLOCK_SM, &mhz) == SUCCESS)
        clocks.mhz = (int)mhz;
    if (why != NULL && why(device, &reasons) == SUCCESS)
        clocks.throttle = throttle_of(reasons);
    return clocks;
}

void arf_nvml_driver(const arf_nvml *nvml, char *text, size_t size)
{
    int (*version)(char *, unsigned);
    *(void **)&version = function(nvml, "nvmlSystemGetDriverVersion");
    if (version == NULL || version(text, (unsigned)size) != SUCCESS)
        text[0] = '\0';
}
