/* SPDX-License-Identifier: Apache-2.0 */
/* libnvrtc, opened at run time: kernel sources to machine code, with no toolkit installed. */
#ifndef ARF_DEVICE_CUDA_NVRTC_H
#define ARF_DEVICE_CUDA_NVRTC_H

#include <nvrtc.h>

#include "base/error.h"

#define ARF_NVRTC_FUNCTIONS(X)   \
    X(nvrtcVersion)              \
    X(nvrtcGetErrorString)       \
    X(nvrtcGetNumSupportedArchs) \
    X(nvrtcGetSupportedArchs)    \
    X(nvrtcCreateProgram)        \
    X(nvrtcDestroyProgram)       \
    X(nvrtcCompileProgram)       \
    X(nvrtcGetPTXSize)           \
    X(nvrtcGetPTX)               \
    X(nvrtcGetCUBINSize)         \
    X(nvrtcGetCUBIN)             \
    X(nvrtcGetProgramLogSize)    \
    X(nvrtcGetProgramLog)

#define ARF_NVRTC_MAX_ARCHITECTURES 64

typedef struct arf_nvrtc {
    void *library;
    int major, minor;
    int architecture[ARF_NVRTC_MAX_ARCHITECTURES]; /* 90, 100, 103: ascending */
    int architectures;
#define ARF_NVRTC_FIELD(name) __typeof__(name) *name;
    ARF_NVRTC_FUNCTIONS(ARF_NVRTC_FIELD)
#undef ARF_NVRTC_FIELD
} arf_nvrtc;

/* ARFUSE_HARDWARE says what is absent or too old, where it was sought, and what works without. */
arfuse_status arf_nvrtc_open(arf_nvrtc *nvrtc, arf_error *error);
void arf_nvrtc_close(arf_nvrtc *nvrtc); /* accepts a zeroed one */

/* What to compile for on a GPU of this capability. */
typedef struct arf_target {
    int architecture; /* 90 */
    int binary;       /* 1: machine code; 0: PTX, which the driver compiles at load */
} arf_target;

/*
 * The device's own architecture where this NVRTC knows it, else PTX of the newest that it knows and
 * the device can run; ARFUSE_HARDWARE when there is none (a GPU older than `oldest`, or than NVRTC
 * still serves).
 */
arfuse_status arf_nvrtc_target(const arf_nvrtc *nvrtc, int capability, arf_target *target,
                               arf_error *error);

#endif
