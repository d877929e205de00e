/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/nvrtc.h"

#include <dlfcn.h>
#include <string.h>

/* Kernels use dependent launch and clusters: Hopper and later. */
#define OLDEST_CAPABILITY 90

static const char needed[] = "needed: NVRTC 12.0 or later (package nvidia-cuda-nvrtc or a CUDA "
                             "toolkit) on the library path; "
                             "without it --device host and --device model:FILE work";

/* Newest first. The bare name is what a toolkit's development package installs. */
static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

static arfuse_status fetch(arf_nvrtc *nvrtc, arf_error *error)
{
    struct {
        const char *name;
        void **function;
    } wanted[] = {
#define ARF_NVRTC_ENTRY(function) {#function, (void **)&nvrtc->function},
        ARF_NVRTC_FUNCTIONS(ARF_NVRTC_ENTRY)
#undef ARF_NVRTC_ENTRY
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].function = dlsym(nvrtc->library, wanted[i].name);
        if (*wanted[i].function == NULL)
            return arf_fail(error, ARFUSE_HARDWARE, "libnvrtc has no %s; %s", wanted[i].name,
                            needed);
    }
    return ARFUSE_OK;
}

static arfuse_status look(arf_nvrtc *nvrtc, arf_error *error)
{
    if (nvrtc->nvrtcVersion(&nvrtc->major, &nvrtc->minor) != NVRTC_SUCCESS || nvrtc->major < 12)
        return arf_fail(error, ARFUSE_HARDWARE, "libnvrtc is version %d.%d; %s", nvrtc->major,
                        nvrtc->minor, needed);
    if (nvrtc->nvrtcGetNumSupportedArchs(&nvrtc->architectures) != NVRTC_SUCCESS ||
        nvrtc->architectures < 1 || nvrtc->architectures > ARF_NVRTC_MAX_ARCHITECTURES ||
        nvrtc->nvrtcGetSupportedArchs(nvrtc->architecture) != NVRTC_SUCCESS)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "libnvrtc %d.%d does not say which architectures it compiles for; %s",
                        nvrtc->major, nvrtc->minor, needed);
    return ARFUSE_OK;
}

arfuse_status arf_nvrtc_open(arf_nvrtc *nvrtc, arf_error *error)
{
    memset(nvrtc, 0, sizeof *nvrtc);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && nvrtc->library == NULL; i++)
        nvrtc->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (nvrtc->library == NULL)
        return arf_fail(error, ARFUSE_HARDWARE, "cannot open libnvrtc: %s; %s", dlerror(), needed);
    arfuse_status status = fetch(nvrtc, error);
    if (status == ARFUSE_OK)
        status = look(nvrtc, error);
    if (status != ARFUSE_OK)
        arf_nvrtc_close(nvrtc);
    return status;
}

void arf_nvrtc_close(arf_nvrtc *nvrtc)
{
    if (nvrtc->library != NULL)
        dlclose(nvrtc->library);
    memset(nvrtc, 0, sizeof *nvrtc);
}

arfuse_status arf_nvrtc_target(const arf_nvrtc *nvrtc, int capability, arf_target *target,
                               arf_error *error)
{
    if (capability < OLDEST_CAPABILITY)
        return arf_fail(error, ARFUSE_HARDWARE,
                        "the GPU has compute capability %d.%d; the kernels need 9.0 or later",
                        capability / 10, capability % 10);
    int newest = 0;
    for (int i = 0; i < nvrtc->architectures; i++) {
        int architecture = nvrtc->architecture[i];
        if (architecture >= OLDEST_CAPABILITY && architecture <= capability &&
            architecture > newest)
            newest = architecture;
    }
    if (newest == 0)
        return arf_fail(
            error, ARFUSE_HARDWARE,
            "libnvrtc %d.%d compiles for nothing that a GPU of compute capability %d.%d "
            "runs; %s",
            nvrtc->major, nvrtc->minor, capability / 10, capability % 10, needed);
    *target = (arf_target){.architecture = newest, .binary = newest == capability};
    return ARFUSE_OK;
}
