/* SPDX-License-Identifier: Apache-2.0 */
#include "support/standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef ARF_CUDA
#include "device/cuda/nvrtc.h"
#endif
#include "support/scratch.h"

static char cache[SCRATCH_PATH];

void *standin_load(const char *library)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    if (length < 0) {
        perror("/proc/self/exe");
        return NULL;
    }
    path[length] = '\0';
    snprintf(strrchr(path, '/'), 64, "/%s", library);
    void *loaded = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (loaded == NULL)
        fprintf(stderr, "%s\n", dlerror());
    return loaded;
}

void *standin_driver(void)
{
    scratch_make(cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    return standin_load("fakecuda/libcuda.so.1");
}

int standin_clear(void **state)
{
    (void)state;
    scratch_remove(cache);
    return 0;
}

#ifdef ARF_CUDA
bool standin_no_compiler(void)
{
    arf_nvrtc nvrtc;
    arf_error error = ARF_ERROR_INIT;
    if (arf_nvrtc_open(&nvrtc, &error) != ARFUSE_OK) {
        printf("1..1\nok 1 # SKIP %s\n", error.text);
        return true;
    }
    arf_nvrtc_close(&nvrtc);
    return false;
}
#endif
