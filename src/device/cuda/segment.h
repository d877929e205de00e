/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One segment: memory of one GPU that other processes can map. The driver's virtual memory
 * management keeps allocation, address and access apart, and so does this. All sizes are whole
 * granules (2 MiB on today's GPUs). The context is current in every function.
 */
#ifndef ARF_DEVICE_CUDA_SEGMENT_H
#define ARF_DEVICE_CUDA_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/driver.h"

/* How a segment comes to another process. */
typedef enum arf_way {
    ARF_WAY_NONE,   /* it does not */
    ARF_WAY_LOCAL,  /* there is no other process */
    ARF_WAY_FD,     /* a POSIX file descriptor, on one node */
    ARF_WAY_FABRIC, /* a fabric handle, within one NVLink domain */
} arf_way;

typedef struct arf_segment {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    uint64_t bytes; /* whole granules */
    bool held, reserved, mapped;
} arf_segment;

/* What goes through an allgather when the way is the fabric. */
typedef struct arf_fabric_handle {
    unsigned char data[ARF_FABRIC_HANDLE_BYTES];
} arf_fabric_handle;

/* `bytes` in whole granules of this device and way. */
arfuse_status arf_segment_round(const arf_driver *driver, CUdevice device, arf_way way,
                                uint64_t bytes, uint64_t *rounded, arf_error *error);

/* Physical memory on `device`. `bytes` is rounded already. */
arfuse_status arf_segment_allocate(const arf_driver *driver, CUdevice device, arf_way way,
                                   uint64_t bytes, arf_segment *segment, arf_error *error);
/* A descriptor that the caller closes. */
arfuse_status arf_segment_export_fd(const arf_driver *driver, const arf_segment *segment,
                                    int *descriptor, arf_error *error);
arfuse_status arf_segment_export_fabric(const arf_driver *driver, const arf_segment *segment,
                                        arf_fabric_handle *handle, arf_error *error);
/* A peer's. The descriptor stays the caller's. */
arfuse_status arf_segment_import_fd(const arf_driver *driver, int descriptor, uint64_t bytes,
                                    arf_segment *segment, arf_error *error);
arfuse_status arf_segment_import_fabric(const arf_driver *driver, const arf_fabric_handle *handle,
                                        uint64_t bytes, arf_segment *segment, arf_error *error);
/* An address for it, that `device` reads and writes. */
arfuse_status arf_segment_map(const arf_driver *driver, CUdevice device, arf_segment *segment,
                              arf_error *error);
/* Undoes what was done, however far it came. Accepts a zeroed one. */
void arf_segment_drop(const arf_driver *driver, arf_segment *segment);

#endif
