/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

/* The library's own look-up, as since CUDA 12.0; older libraries lack this symbol. */
typedef CUresult (*get_address_fn)(const char *symbol, void **function, int version,
                                   cuuint64_t flags, CUdriverProcAddressQueryResult *status);

static const char needed[] =
    "needed: an NVIDIA driver for CUDA 12.0 or later (12.8 for Blackwell); without it "
    "--device host and --device model:FILE work";

static arfuse_status fetch(arf_driver *driver, arf_error *error)
{
    get_address_fn get_address;
    *(void **)&get_address = dlsym(driver->library, "cuGetProcAddress_v2");
    if (get_address == NULL)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "libcuda.so.1 is too old: it has no cuGetProcAddress_v2; %s", needed);
    struct {
        const char *name;
        void **function;
    } wanted[] = {
#define ARF_DRIVER_ENTRY(function) {#function, (void **)&driver->function},
        ARF_DRIVER_FUNCTIONS(ARF_DRIVER_ENTRY)
#undef ARF_DRIVER_ENTRY
        {"cuStreamGetCaptureInfo", (void **)&driver->capture_info},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        CUdriverProcAddressQueryResult status;
        CUresult result =
            get_address(wanted[i].name, wanted[i].function, ARF_DRIVER_ABI, 0, &status);
        if (result != CUDA_SUCCESS || *wanted[i].function == NULL)
            return arf_fail(error, ARFUSE_HARDWARE, "libcuda.so.1 has no %s; %s", wanted[i].name,
                            needed);
    }
    return ARFUSE_OK;
}

arfuse_status arf_driver_open(arf_driver *driver, arf_error *error)
{
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver->library == NULL)
        return arf_fail(error, ARFUSE_HARDWARE, "cannot open the CUDA driver library: %s; %s",
                        dlerror(), needed);
    arfuse_status status = fetch(driver, error);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuInit, 0);
    if (status == ARFUSE_OK)
        status = ARF_CU(driver, error, cuDriverGetVersion, &driver->version);
    if (status == ARFUSE_OK && driver->version < ARF_DRIVER_ABI)
        status = arf_fail(error, ARFUSE_HARDWARE, "the NVIDIA driver supports CUDA %d.%d; %s",
                          driver->version / 1000, driver->version % 1000 / 10, needed);
    if (status != ARFUSE_OK)
        arf_driver_close(driver);
    return status;
}

void arf_driver_close(arf_driver *driver)
{
    if (driver->library != NULL)
        dlclose(driver->library);
    memset(driver, 0, sizeof *driver);
}

static arfuse_status meaning(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return ARFUSE_OK;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return ARFUSE_HARDWARE;
    default:
        return ARFUSE_FAILURE;
    }
}

arfuse_status arf_driver_check(const arf_driver *driver, CUresult result, const char *call,
                               arf_error *error)
{
    if (result == CUDA_SUCCESS)
        return ARFUSE_OK;
    const char *name = NULL, *text = NULL;
    if (driver->cuGetErrorName == NULL || driver->cuGetErrorName(result, &name) != CUDA_SUCCESS)
        name = "unknown CUDA error";
    if (driver->cuGetErrorString == NULL || driver->cuGetErrorString(result, &text) != CUDA_SUCCESS)
        text = "no text";
    return arf_fail(error, meaning(result), "%s: %s (%d): %s", call, name, (int)result, text);
}
