/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/segment.h"

static CUmemAllocationHandleType handle_type(arf_way way)
{
    return way == ARF_WAY_FABRIC ? ARF_HANDLE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static CUmemAllocationProp properties(CUdevice device, arf_way way)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = handle_type(way),
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device}};
}

arfuse_status arf_segment_round(const arf_driver *driver, CUdevice device, arf_way way,
                                uint64_t bytes, uint64_t *rounded, arf_error *error)
{
    size_t granule = 0;
    CUmemAllocationProp wanted = properties(device, way);
    ARF_TRY(ARF_CU(driver, error, cuMemGetAllocationGranularity, &granule, &wanted,
                   CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (granule == 0)
        return arf_fail(error, ARFUSE_FAILURE, "the driver states a granularity of 0 bytes");
    *rounded = (bytes + granule - 1) / granule * granule;
    return ARFUSE_OK;
}

arfuse_status arf_segment_allocate(const arf_driver *driver, CUdevice device, arf_way way,
                                   uint64_t bytes, arf_segment *segment, arf_error *error)
{
    CUmemAllocationProp wanted = properties(device, way);
    *segment = (arf_segment){.bytes = bytes};
    ARF_TRY(ARF_CU(driver, error, cuMemCreate, &segment->handle, bytes, &wanted, 0));
    segment->held = true;
    return ARFUSE_OK;
}

arfuse_status arf_segment_export_fd(const arf_driver *driver, const arf_segment *segment,
                                    int *descriptor, arf_error *error)
{
    return ARF_CU(driver, error, cuMemExportToShareableHandle, descriptor, segment->handle,
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

arfuse_status arf_segment_export_fabric(const arf_driver *driver, const arf_segment *segment,
                                        arf_fabric_handle *handle, arf_error *error)
{
    return ARF_CU(driver, error, cuMemExportToShareableHandle, handle, segment->handle,
                  ARF_HANDLE_FABRIC, 0);
}

static arfuse_status import(const arf_driver *driver, void *shared, CUmemAllocationHandleType type,
                            uint64_t bytes, arf_segment *segment, arf_error *error)
{
    *segment = (arf_segment){.bytes = bytes};
    ARF_TRY(ARF_CU(driver, error, cuMemImportFromShareableHandle, &segment->handle, shared, type));
    segment->held = true;
    return ARFUSE_OK;
}

arfuse_status arf_segment_import_fd(const arf_driver *driver, int descriptor, uint64_t bytes,
                                    arf_segment *segment, arf_error *error)
{
    return import(driver, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                  bytes, segment, error);
}

arfuse_status arf_segment_import_fabric(const arf_driver *driver, const arf_fabric_handle *handle,
                                        uint64_t bytes, arf_segment *segment, arf_error *error)
{
    return import(driver, (void *)(uintptr_t)handle, ARF_HANDLE_FABRIC, bytes, segment, error);
}

arfuse_status arf_segment_map(const arf_driver *driver, CUdevice device, arf_segment *segment,
                              arf_error *error)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ARF_TRY(ARF_CU(driver, error, cuMemAddressReserve, &segment->address, segment->bytes, 0, 0, 0));
    segment->reserved = true;
    ARF_TRY(
        ARF_CU(driver, error, cuMemMap, segment->address, segment->bytes, 0, segment->handle, 0));
    segment->mapped = true;
    return ARF_CU(driver, error, cuMemSetAccess, segment->address, segment->bytes, &access, 1);
}

void arf_segment_drop(const arf_driver *driver, arf_segment *segment)
{
    if (segment->mapped)
        driver->cuMemUnmap(segment->address, segment->bytes);
    if (segment->reserved)
        driver->cuMemAddressFree(segment->address, segment->bytes);
    if (segment->held)
        driver->cuMemRelease(segment->handle);
    *segment = (arf_segment){0};
}
