/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda, opened at run time: one binary serves machines with and without a
 * GPU. Every function that the device calls stands in the one list below.
 */
#ifndef ARF_DEVICE_CUDA_DRIVER_H
#define ARF_DEVICE_CUDA_DRIVER_H

#include <cuda.h>

#include "base/error.h"

/*
 * The functions, by the names of cuda.h. Each is asked for at the ABI of
 * ARF_DRIVER_ABI, so that a library newer than the one in use at build time cannot
 * hand out a function of another signature.
 */
#define ARF_DRIVER_FUNCTIONS(X)                    \
    X(cuInit)                                      \
    X(cuDriverGetVersion)                          \
    X(cuDeviceGetCount)                            \
    X(cuDeviceGet)                                 \
    X(cuDeviceGetName)                             \
    X(cuDeviceGetAttribute)                        \
    X(cuDeviceGetUuid)                             \
    X(cuDeviceGetPCIBusId)                         \
    X(cuDeviceGetP2PAttribute)                     \
    X(cuDeviceTotalMem)                            \
    X(cuDevicePrimaryCtxRetain)                    \
    X(cuDevicePrimaryCtxRelease)                   \
    X(cuCtxGetCurrent)                             \
    X(cuCtxGetDevice)                              \
    X(cuCtxPushCurrent)                            \
    X(cuCtxPopCurrent)                             \
    X(cuCtxSynchronize)                            \
    X(cuCtxEnablePeerAccess)                       \
    X(cuMemAlloc)                                  \
    X(cuMemFree)                                   \
    X(cuMemGetInfo)                                \
    X(cuMemGetAllocationGranularity)               \
    X(cuMemCreate)                                 \
    X(cuMemRelease)                                \
    X(cuMemAddressReserve)                         \
    X(cuMemAddressFree)                            \
    X(cuMemMap)                                    \
    X(cuMemUnmap)                                  \
    X(cuMemSetAccess)                              \
    X(cuMemExportToShareableHandle)                \
    X(cuMemImportFromShareableHandle)              \
    X(cuMemcpyHtoD)                                \
    X(cuMemcpyHtoDAsync)                           \
    X(cuMemcpyDtoH)                                \
    X(cuMemcpyDtoDAsync)                           \
    X(cuMemsetD8)                                  \
    X(cuMemsetD8Async)                             \
    X(cuMemsetD16)                                 \
    X(cuMemsetD32Async)                            \
    X(cuMemHostAlloc)                              \
    X(cuMemHostGetDevicePointer)                   \
    X(cuMemFreeHost)                               \
    X(cuModuleLoadDataEx)                          \
    X(cuModuleUnload)                              \
    X(cuModuleGetFunction)                         \
    X(cuFuncGetAttribute)                          \
    X(cuFuncSetAttribute)                          \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
    X(cuOccupancyMaxActiveClusters)                \
    X(cuLaunchKernelEx)                            \
    X(cuStreamCreate)                              \
    X(cuStreamDestroy)                             \
    X(cuStreamIsCapturing)                         \
    X(cuStreamSynchronize)                         \
    X(cuStreamBeginCapture)                        \
    X(cuStreamEndCapture)                          \
    X(cuGraphInstantiateWithFlags)                 \
    X(cuGraphLaunch)                               \
    X(cuGraphUpload)                               \
    X(cuGraphExecDestroy)                          \
    X(cuGraphDestroy)                              \
    X(cuUserObjectCreate)                          \
    X(cuUserObjectRelease)                         \
    X(cuGraphRetainUserObject)                     \
    X(cuEventCreate)                               \
    X(cuEventRecord)                               \
    X(cuEventSynchronize)                          \
    X(cuEventElapsedTime)                          \
    X(cuEventDestroy)                              \
    X(cuGetErrorName)                              \
    X(cuGetErrorString)

/* CUDA 12.0: the first whose ABI has every function above as cuda.h of 12 and 13 declares it. */
#define ARF_DRIVER_ABI 12000

/* What cuda.h names since 12.4 only; the driver answers or refuses by number. */
#define ARF_FABRIC_SUPPORTED ((CUdevice_attribute)128)
#define ARF_MULTICAST_SUPPORTED ((CUdevice_attribute)132)
#define ARF_MPS_ENABLED ((CUdevice_attribute)133)
#define ARF_HANDLE_FABRIC ((CUmemAllocationHandleType)8)
#define ARF_FABRIC_HANDLE_BYTES 64

typedef struct arf_driver {
    void *library;
    int version; /* 13000: what the driver supports */
    /* A macro that renames a function to its newest version renames field and type alike. */
#define ARF_DRIVER_FIELD(name) __typeof__(name) *name;
    ARF_DRIVER_FUNCTIONS(ARF_DRIVER_FIELD)
#undef ARF_DRIVER_FIELD
    /* cuStreamGetCaptureInfo as of that ABI: cuda.h of 13 declares another one. */
    CUresult (*capture_info)(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                             CUgraph *graph, const CUgraphNode **dependencies, size_t *count);
} arf_driver;

/* Opens and initialises. ARFUSE_HARDWARE says what is absent or too old, and what works without. */
arfuse_status arf_driver_open(arf_driver *driver, arf_error *error);
void arf_driver_close(arf_driver *driver); /* accepts a zeroed one */

/* ARFUSE_OK for CUDA_SUCCESS. Else the message names call, error name and text; running out of
 * memory and the like is ARFUSE_FAILURE, a device that is lost or absent ARFUSE_HARDWARE. */
arfuse_status arf_driver_check(const arf_driver *driver, CUresult result, const char *call,
                               arf_error *error);

/* ARF_CU(driver, error, cuMemAlloc, &address, bytes): calls, and checks. */
#define ARF_CU(driver, error, function, ...) \
    arf_driver_check((driver), (driver)->function(__VA_ARGS__), #function, (error))

#endif
