/* SPDX-License-Identifier: Apache-2.0 */
#include "fakecuda.h"

#include <cuda.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/arguments.h"

#define SHOWN __attribute__((visibility("default")))
#define GRANULE ((size_t)2 << 20)
enum { MOST_DEVICES = 16, FABRIC = 8, KERNEL_NAME = 64, LAUNCHES_KEPT = 64 };

/* ---- the machine ----------------------------------------------------------------------------- */

static struct machine {
    int devices; /* visible ... */
    int physical[MOST_DEVICES];
    int sms, mps, pcie, no_fd, fabric;
    char no_peer[128];
} machine;

static int number(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? atoi(text) : fallback;
}

static void look_around(void)
{
    int all = number("FAKECUDA_DEVICES", 1);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    machine.devices = 0;
    if (visible == NULL)
        for (int i = 0; i < all && i < MOST_DEVICES; i++)
            machine.physical[machine.devices++] = i;
    else
        for (const char *at = visible; *at != '\0' && machine.devices < MOST_DEVICES;) {
            char *end;
            long index = strtol(at, &end, 10);
            if (end == at || index < 0 || index >= all)
                break; /* as the driver does: the rest is not seen */
            machine.physical[machine.devices++] = (int)index;
            at = *end == ',' ? end + 1 : end;
        }
    machine.sms = number("FAKECUDA_SMS", 132);
    machine.mps = number("FAKECUDA_MPS", 0);
    machine.pcie = number("FAKECUDA_PCIE", 0);
    machine.no_fd = number("FAKECUDA_NO_FD", 0);
    machine.fabric = number("FAKECUDA_FABRIC", 0);
    const char *pairs = getenv("FAKECUDA_NO_PEER");
    snprintf(machine.no_peer, sizeof machine.no_peer, ",%s,", pairs != NULL ? pairs : "");
}

/* ---- failures and leaks -----------------------------------------------------------------------
 */

/* Atomic: a watch of the device has a thread of its own. */
static atomic_int calls, live;
static int fail_at;
static const char *_Atomic last_call = "";

SHOWN void fakecuda_arm(int n)
{
    calls = 0;
    fail_at = n;
}
SHOWN int fakecuda_calls(const char **last)
{
    if (last != NULL)
        *last = last_call;
    return calls;
}
SHOWN int fakecuda_live(void)
{
    return live;
}

static bool fails(const char *name)
{
    last_call = name;
    return atomic_fetch_add(&calls, 1) + 1 == fail_at;
}
#define MAY_FAIL(code)       \
    do {                     \
        if (fails(__func__)) \
            return (code);   \
    } while (0)
#define LOST CUDA_ERROR_UNKNOWN
#define FULL CUDA_ERROR_OUT_OF_MEMORY

static void *make(size_t bytes)
{
    live++;
    return calloc(1, bytes > 0 ? bytes : 1);
}
static void drop(void *object)
{
    live--;
    free(object);
}

/* ---- devices and contexts ---------------------------------------------------------------------
 */

static CUresult fake_init(unsigned flags)
{
    (void)flags;
    if (fail_at == 0)
        fail_at = number("FAKECUDA_FAIL", 0);
    MAY_FAIL(CUDA_ERROR_NO_DEVICE);
    look_around();
    return machine.devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
static CUresult fake_version(int *version)
{
    MAY_FAIL(LOST);
    *version = 13000;
    return CUDA_SUCCESS;
}
static CUresult fake_count(int *count)
{
    MAY_FAIL(LOST);
    *count = machine.devices;
    return CUDA_SUCCESS;
}
static CUresult fake_device(CUdevice *device, int ordinal)
{
    MAY_FAIL(LOST);
    if (ordinal < 0 || ordinal >= machine.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}
static CUresult fake_name(char *name, int size, CUdevice device)
{
    MAY_FAIL(LOST);
    (void)device;
    snprintf(name, (size_t)size, "NVIDIA Stand-in");
    return CUDA_SUCCESS;
}
static CUresult fake_attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    MAY_FAIL(LOST);
    (void)device;
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = machine.sms;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = 50 << 20;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = 227 << 10;
        break;
    case 133: /* MPS */
        *value = machine.mps;
        break;
    default: /* descriptors, fabric: promised, whatever happens then */
        *value = 1;
    }
    return CUDA_SUCCESS;
}
static CUresult fake_uuid(CUuuid *uuid, CUdevice device)
{
    MAY_FAIL(LOST);
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[15] = (char)(machine.physical[device] + 1);
    return CUDA_SUCCESS;
}
static CUresult fake_bus_id(char *text, int size, CUdevice device)
{
    MAY_FAIL(LOST);
    snprintf(text, (size_t)size, "0000:%02x:00.0", machine.physical[device] + 1);
    return CUDA_SUCCESS;
}
static CUresult fake_peer(int *value, CUdevice_P2PAttribute which, CUdevice from, CUdevice to)
{
    char pair[32];
    MAY_FAIL(LOST);
    snprintf(pair, sizeof pair, ",%d-%d,", machine.physical[from], machine.physical[to]);
    bool reach = strstr(machine.no_peer, pair) == NULL;
    *value =
        which == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED ? reach && !machine.pcie : reach;
    return CUDA_SUCCESS;
}
static CUresult fake_total(size_t *bytes, CUdevice device)
{
    MAY_FAIL(LOST);
    (void)device;
    *bytes = (size_t)1 << 30;
    return CUDA_SUCCESS;
}

static int retained;
static _Thread_local int pushed;
static CUresult fake_retain(CUcontext *context, CUdevice device)
{
    MAY_FAIL(FULL);
    (void)device;
    *context = (CUcontext)&machine;
    retained++;
    live++;
    return CUDA_SUCCESS;
}
static CUresult fake_release(CUdevice device)
{
    (void)device;
    retained--;
    live--;
    return CUDA_SUCCESS;
}
static CUresult fake_current(CUcontext *context)
{
    MAY_FAIL(LOST);
    *context = pushed > 0 ? (CUcontext)&machine : NULL;
    return CUDA_SUCCESS;
}
static CUresult fake_current_device(CUdevice *device)
{
    MAY_FAIL(LOST);
    *device = 0;
    return CUDA_SUCCESS;
}
static CUresult fake_push(CUcontext context)
{
    MAY_FAIL(LOST);
    (void)context;
    pushed++;
    live++;
    return CUDA_SUCCESS;
}
/* All contexts are one here: one bad pair is enough. */
static CUresult fake_enable_peer(CUcontext peer, unsigned flags)
{
    MAY_FAIL(LOST);
    (void)peer, (void)flags;
    return strcmp(machine.no_peer, ",,") == 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
static CUresult fake_pop(CUcontext *context)
{
    if (pushed == 0)
        abort(); /* a pop without its push would take the caller's context */
    *context = (CUcontext)&machine;
    pushed--;
    live--;
    return CUDA_SUCCESS;
}
static CUresult fake_synchronize(void)
{
    MAY_FAIL(LOST);
    return CUDA_SUCCESS;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static CUresult fake_alloc(CUdeviceptr *address, size_t bytes)
{
    MAY_FAIL(FULL);
    *address = (CUdeviceptr)(uintptr_t)make(bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_free(CUdeviceptr address)
{
    drop((void *)(uintptr_t)address);
    return CUDA_SUCCESS;
}
static CUresult fake_info(size_t *bytes, size_t *total)
{
    *bytes = *total = (size_t)1 << 30;
    return CUDA_SUCCESS;
}
static CUresult fake_upload(CUdeviceptr to, const void *from, size_t bytes)
{
    MAY_FAIL(LOST);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_upload_async(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    MAY_FAIL(LOST);
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_download(void *to, CUdeviceptr from, size_t bytes)
{
    MAY_FAIL(LOST);
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    MAY_FAIL(LOST);
    (void)stream;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_fill8(CUdeviceptr to, unsigned char value, size_t count)
{
    MAY_FAIL(LOST);
    memset((void *)(uintptr_t)to, value, count);
    return CUDA_SUCCESS;
}
static CUresult fake_fill16(CUdeviceptr to, unsigned short value, size_t count)
{
    MAY_FAIL(LOST);
    for (size_t i = 0; i < count; i++)
        ((unsigned short *)(uintptr_t)to)[i] = value;
    return CUDA_SUCCESS;
}
static CUresult fake_host_alloc(void **memory, size_t bytes, unsigned flags)
{
    MAY_FAIL(FULL);
    (void)flags;
    *memory = make(bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_host_address(CUdeviceptr *address, void *memory, unsigned flags)
{
    MAY_FAIL(LOST);
    (void)flags;
    *address = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}
static CUresult fake_host_free(void *memory)
{
    drop(memory);
    return CUDA_SUCCESS;
}

/* Physical memory is a memfd. */
typedef struct handle {
    int descriptor;
    size_t bytes;
} handle;
typedef struct fabric_name {
    long process;
    int descriptor;
} fabric_name;

static CUresult fake_granularity(size_t *bytes, const CUmemAllocationProp *wanted,
                                 CUmemAllocationGranularity_flags flags)
{
    MAY_FAIL(LOST);
    (void)wanted, (void)flags;
    *bytes = GRANULE;
    return CUDA_SUCCESS;
}
static CUmemGenericAllocationHandle new_handle(int descriptor, size_t bytes)
{
    handle *h = make(sizeof *h);
    *h = (handle){descriptor, bytes};
    return (CUmemGenericAllocationHandle)(uintptr_t)h;
}
static CUresult fake_create(CUmemGenericAllocationHandle *out, size_t bytes,
                            const CUmemAllocationProp *wanted, unsigned long long flags)
{
    MAY_FAIL(FULL);
    (void)flags;
    if (bytes == 0 || bytes % GRANULE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((int)wanted->requestedHandleTypes == FABRIC && !machine.fabric)
        return CUDA_ERROR_NOT_PERMITTED;
    int descriptor = memfd_create("fakecuda", MFD_CLOEXEC);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)bytes) != 0)
        return FULL;
    *out = new_handle(descriptor, bytes);
    return CUDA_SUCCESS;
}
static CUresult fake_release_handle(CUmemGenericAllocationHandle given)
{
    handle *h = (handle *)(uintptr_t)given;
    close(h->descriptor);
    drop(h);
    return CUDA_SUCCESS;
}
static CUresult fake_export(void *out, CUmemGenericAllocationHandle given,
                            CUmemAllocationHandleType type, unsigned long long flags)
{
    const handle *h = (const handle *)(uintptr_t)given;
    MAY_FAIL(LOST);
    (void)flags;
    if ((int)type == FABRIC) {
        fabric_name name = {(long)getpid(), h->descriptor};
        memset(out, 0, 64);
        memcpy(out, &name, sizeof name);
        return CUDA_SUCCESS;
    }
    if (machine.no_fd)
        return CUDA_ERROR_NOT_SUPPORTED;
    *(int *)out = fcntl(h->descriptor, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
}
static CUresult fake_import(CUmemGenericAllocationHandle *out, void *shared,
                            CUmemAllocationHandleType type)
{
    int descriptor;
    MAY_FAIL(CUDA_ERROR_INVALID_DEVICE);
    if ((int)type == FABRIC) {
        fabric_name name;
        char path[64];
        memcpy(&name, shared, sizeof name);
        snprintf(path, sizeof path, "/proc/%ld/fd/%d", name.process, name.descriptor);
        descriptor = open(path, O_RDWR | O_CLOEXEC);
    } else
        descriptor = fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = new_handle(descriptor, (size_t)lseek(descriptor, 0, SEEK_END));
    return CUDA_SUCCESS;
}
static CUresult fake_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    MAY_FAIL(FULL);
    (void)alignment, (void)hint, (void)flags;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return FULL;
    live++;
    *address = (CUdeviceptr)(uintptr_t)at;
    return CUDA_SUCCESS;
}
static CUresult fake_unreserve(CUdeviceptr address, size_t bytes)
{
    munmap((void *)(uintptr_t)address, bytes);
    live--;
    return CUDA_SUCCESS;
}
static CUresult fake_map(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle given, unsigned long long flags)
{
    const handle *h = (const handle *)(uintptr_t)given;
    MAY_FAIL(LOST);
    (void)flags;
    if (offset + bytes > h->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    /* No access yet: who forgets cuMemSetAccess is killed at the first look. */
    if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, h->descriptor,
             (off_t)offset) == MAP_FAILED)
        return LOST;
    live++;
    return CUDA_SUCCESS;
}
static CUresult fake_unmap(CUdeviceptr address, size_t bytes)
{
    mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    live--;
    return CUDA_SUCCESS;
}
static CUresult fake_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *wanted,
                            size_t count)
{
    MAY_FAIL(CUDA_ERROR_INVALID_DEVICE);
    (void)wanted, (void)count;
    return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                                    : LOST;
}

/* ---- modules, streams, graphs ------------------------------------------------------------------
 */

static CUresult fake_load(CUmodule *module, const void *image, unsigned count, CUjit_option *option,
                          void **value)
{
    MAY_FAIL(FULL);
    (void)image, (void)count, (void)option, (void)value;
    *module = make(KERNEL_NAME);
    return CUDA_SUCCESS;
}
static CUresult fake_unload(CUmodule module)
{
    drop(module);
    return CUDA_SUCCESS;
}
static CUresult fake_function(CUfunction *function, CUmodule module, const char *name)
{
    MAY_FAIL(CUDA_ERROR_NOT_FOUND);
    snprintf((char *)(void *)module, KERNEL_NAME, "%s", name);
    *function = (CUfunction)(void *)module;
    return CUDA_SUCCESS;
}
static CUresult fake_get_attribute(int *value, CUfunction_attribute which, CUfunction function)
{
    MAY_FAIL(LOST);
    (void)which, (void)function;
    *value = 1024;
    return CUDA_SUCCESS;
}
static int carveout = -1;
SHOWN int fakecuda_carveout(void)
{
    return carveout;
}
static CUresult fake_set_attribute(CUfunction function, CUfunction_attribute which, int value)
{
    MAY_FAIL(LOST);
    (void)function;
    if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        carveout = value;
    return CUDA_SUCCESS;
}
static CUresult fake_blocks(int *count, CUfunction function, int threads, size_t bytes)
{
    MAY_FAIL(LOST);
    (void)function, (void)threads, (void)bytes;
    *count = 2;
    return CUDA_SUCCESS;
}
static CUresult fake_clusters(int *count, CUfunction function, const CUlaunchConfig *config)
{
    MAY_FAIL(LOST);
    (void)function, (void)config;
    *count = 60;
    return CUDA_SUCCESS;
}
static char launched[LAUNCHES_KEPT][KERNEL_NAME];
static int launches;

SHOWN const char *fakecuda_launched(int back)
{
    return back < launches ? launched[(launches - 1 - back) % LAUNCHES_KEPT] : "";
}

static unsigned call_flags;
SHOWN unsigned fakecuda_flags(void)
{
    return call_flags;
}

/* What kernels/order.cu does; memory of the device is memory here. */
static void run_order(const arf_order_mark *mark)
{
    if (!mark->enter) {
        if (*mark->busy == mark->number)
            *mark->busy = 0;
    } else if (*mark->busy == 0) {
        *mark->busy = mark->number;
    } else if (*mark->broken == 0) {
        *mark->broken = *mark->busy << 32 | mark->number;
    }
}

static int stuck;

SHOWN void fakecuda_stick(int on)
{
    stuck = on;
}

/* What kernels/library_mark.cu and the first thread of library_norm.cu do. */
static void run_mark(const arf_team_view *team, bool ended)
{
    arf_control *control = (arf_control *)(void *)team->peer[team->first_rank];
    if (!ended)
        team->mirror[ARF_MIRROR_BEGUN] = ++control->library_calls;
    else if (!stuck)
        team->mirror[ARF_MIRROR_ENDED] = control->library_calls;
}

/* What src/device/cuda/flag.c leaves behind: a thousand round trips of 1.5 us. */
static void run_flag(arf_word *mine, int first)
{
    if (first && getenv("FAKECUDA_NO_FLAG") == NULL)
        mine[1] = 1500000;
}

static CUresult fake_launch(const CUlaunchConfig *config, CUfunction function, void **parameters,
                            void **extra)
{
    const char *name = (const char *)(const void *)function;
    MAY_FAIL(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    (void)config, (void)extra;
    snprintf(launched[launches++ % LAUNCHES_KEPT], KERNEL_NAME, "%s", name);
    if (strcmp(name, "arf_order") == 0)
        run_order(parameters[0]);
    else if (strcmp(name, "arf_flag") == 0)
        run_flag(*(arf_word **)parameters[0], *(const int *)parameters[2]);
    else
        call_flags = ((const arf_call *)parameters[0])->flags;
    if (strcmp(name, "arf_library_norm") == 0)
        run_mark(parameters[1], true);
    if (strcmp(name, "arf_library_mark") == 0)
        run_mark(parameters[1], (((const arf_call *)parameters[0])->flags & ARF_MARK_ENDED) != 0);
    return CUDA_SUCCESS;
}
static bool capturing;
static CUresult fake_stream(CUstream *stream, unsigned flags)
{
    MAY_FAIL(FULL);
    (void)flags;
    *stream = make(1);
    return CUDA_SUCCESS;
}
static CUresult fake_stream_destroy(CUstream stream)
{
    drop(stream);
    return CUDA_SUCCESS;
}
/* Kernels do nothing, so any two events are as far apart. */
static CUresult fake_event(CUevent *event, unsigned flags)
{
    MAY_FAIL(FULL);
    (void)flags;
    *event = make(1);
    return CUDA_SUCCESS;
}
static CUresult fake_event_destroy(CUevent event)
{
    drop(event);
    return CUDA_SUCCESS;
}
static CUresult fake_record(CUevent event, CUstream stream)
{
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult fake_event_synchronize(CUevent event)
{
    MAY_FAIL(LOST);
    (void)event;
    return CUDA_SUCCESS;
}
static CUresult fake_elapsed(float *ms, CUevent begin, CUevent end)
{
    MAY_FAIL(CUDA_ERROR_LAUNCH_FAILED);
    (void)begin, (void)end;
    *ms = 1;
    return CUDA_SUCCESS;
}
static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
static CUresult fake_stream_synchronize(CUstream stream)
{
    MAY_FAIL(LOST);
    (void)stream;
    return CUDA_SUCCESS;
}
static CUresult fake_begin(CUstream stream, CUstreamCaptureMode mode)
{
    MAY_FAIL(LOST);
    (void)stream, (void)mode;
    capturing = true;
    return CUDA_SUCCESS;
}
static CUresult fake_end(CUstream stream, CUgraph *graph)
{
    (void)stream;
    capturing = false;
    *graph = make(1);
    return CUDA_SUCCESS;
}
static CUresult fake_instantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    MAY_FAIL(FULL);
    (void)graph, (void)flags;
    *executable = make(1);
    return CUDA_SUCCESS;
}
static CUresult fake_graph_destroy(CUgraph graph)
{
    drop(graph);
    return CUDA_SUCCESS;
}
static CUresult fake_executable_destroy(CUgraphExec executable)
{
    drop(executable);
    return CUDA_SUCCESS;
}
static CUresult fake_error_name(CUresult result, const char **name)
{
    static char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", (int)result);
    *name = text;
    return CUDA_SUCCESS;
}
static CUresult fake_error_text(CUresult result, const char **text)
{
    (void)result;
    *text = "stand-in error";
    return CUDA_SUCCESS;
}
static CUresult fake_absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the look-up --------------------------------------------------------------------------------
 */

/* Its only export by cuda.h's name: everything else is asked for through it. */
SHOWN CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                   cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
#define ENTRY(name, with)     \
    {                         \
#name, (void *)(with) \
    }
    static const struct {
        const char *name;
        void *function;
    } table[] = {
        ENTRY(cuInit, fake_init),
        ENTRY(cuDriverGetVersion, fake_version),
        ENTRY(cuDeviceGetCount, fake_count),
        ENTRY(cuDeviceGet, fake_device),
        ENTRY(cuDeviceGetName, fake_name),
        ENTRY(cuDeviceGetAttribute, fake_attribute),
        ENTRY(cuDeviceGetUuid, fake_uuid),
        ENTRY(cuDeviceGetPCIBusId, fake_bus_id),
        ENTRY(cuDeviceGetP2PAttribute, fake_peer),
        ENTRY(cuDeviceTotalMem, fake_total),
        ENTRY(cuDevicePrimaryCtxRetain, fake_retain),
        ENTRY(cuDevicePrimaryCtxRelease, fake_release),
        ENTRY(cuCtxGetCurrent, fake_current),
        ENTRY(cuCtxGetDevice, fake_current_device),
        ENTRY(cuCtxPushCurrent, fake_push),
        ENTRY(cuCtxPopCurrent, fake_pop),
        ENTRY(cuCtxSynchronize, fake_synchronize),
        ENTRY(cuCtxEnablePeerAccess, fake_enable_peer),
        ENTRY(cuMemAlloc, fake_alloc),
        ENTRY(cuMemFree, fake_free),
        ENTRY(cuMemGetInfo, fake_info),
        ENTRY(cuMemcpyHtoD, fake_upload),
        ENTRY(cuMemcpyHtoDAsync, fake_upload_async),
        ENTRY(cuMemcpyDtoH, fake_download),
        ENTRY(cuMemcpyDtoDAsync, fake_copy),
        ENTRY(cuMemsetD8, fake_fill8),
        ENTRY(cuMemsetD16, fake_fill16),
        ENTRY(cuMemHostAlloc, fake_host_alloc),
        ENTRY(cuMemHostGetDevicePointer, fake_host_address),
        ENTRY(cuMemFreeHost, fake_host_free),
        ENTRY(cuMemGetAllocationGranularity, fake_granularity),
        ENTRY(cuMemCreate, fake_create),
        ENTRY(cuMemRelease, fake_release_handle),
        ENTRY(cuMemExportToShareableHandle, fake_export),
        ENTRY(cuMemImportFromShareableHandle, fake_import),
        ENTRY(cuMemAddressReserve, fake_reserve),
        ENTRY(cuMemAddressFree, fake_unreserve),
        ENTRY(cuMemMap, fake_map),
        ENTRY(cuMemUnmap, fake_unmap),
        ENTRY(cuMemSetAccess, fake_access),
        ENTRY(cuModuleLoadDataEx, fake_load),
        ENTRY(cuModuleUnload, fake_unload),
        ENTRY(cuModuleGetFunction, fake_function),
        ENTRY(cuFuncGetAttribute, fake_get_attribute),
        ENTRY(cuFuncSetAttribute, fake_set_attribute),
        ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, fake_blocks),
        ENTRY(cuOccupancyMaxActiveClusters, fake_clusters),
        ENTRY(cuLaunchKernelEx, fake_launch),
        ENTRY(cuStreamCreate, fake_stream),
        ENTRY(cuStreamDestroy, fake_stream_destroy),
        ENTRY(cuStreamIsCapturing, fake_is_capturing),
        ENTRY(cuEventCreate, fake_event),
        ENTRY(cuEventDestroy, fake_event_destroy),
        ENTRY(cuEventRecord, fake_record),
        ENTRY(cuEventSynchronize, fake_event_synchronize),
        ENTRY(cuEventElapsedTime, fake_elapsed),
        ENTRY(cuStreamSynchronize, fake_stream_synchronize),
        ENTRY(cuStreamBeginCapture, fake_begin),
        ENTRY(cuStreamEndCapture, fake_end),
        ENTRY(cuGraphInstantiateWithFlags, fake_instantiate),
        ENTRY(cuGraphDestroy, fake_graph_destroy),
        ENTRY(cuGraphExecDestroy, fake_executable_destroy),
        ENTRY(cuGetErrorName, fake_error_name),
        ENTRY(cuGetErrorString, fake_error_text),
    };
    (void)version, (void)flags;
    *function = (void *)fake_absent;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, symbol) == 0)
            *function = table[i].function;
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
