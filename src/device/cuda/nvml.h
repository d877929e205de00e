/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnvidia-ml, opened at run time where it is: it knows what the CUDA driver does not tell a
 * process (all SMs of a GPU under MPS, links of GPUs that CUDA_VISIBLE_DEVICES hides, the NVLink
 * domain). Everything here is advice: without the library each question is answered "unknown".
 */
#ifndef ARF_DEVICE_CUDA_NVML_H
#define ARF_DEVICE_CUDA_NVML_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "device/clocks.h"

typedef struct arf_nvml {
    void *library; /* NULL: not here, or not usable */
} arf_nvml;

void arf_nvml_open(arf_nvml *nvml);
void arf_nvml_close(arf_nvml *nvml); /* accepts a zeroed one */

/* "GPU-01234567-89ab-...": how CUDA_VISIBLE_DEVICES and all tools spell a GPU. */
#define ARF_UUID_TEXT 48
void arf_uuid_text(const CUuuid *uuid, char text[ARF_UUID_TEXT]);

/* All SMs of the GPU, whatever this process may use of them; 0: unknown. */
int arf_nvml_sm_count(const arf_nvml *nvml, const CUuuid *gpu, int capability_major);

/* The NVLink domain that a GPU has joined. False: none, or unknown. */
typedef struct arf_fabric_domain {
    unsigned char cluster[16];
    unsigned clique;
} arf_fabric_domain;
bool arf_nvml_fabric(const arf_nvml *nvml, const CUuuid *gpu, arf_fabric_domain *domain);

/* Reach of `to` from `from`, both on this node: 1 yes, 0 no, -1 unknown. */
int arf_nvml_peer_access(const arf_nvml *nvml, const CUuuid *from, const CUuuid *to);
int arf_nvml_peer_nvlink(const arf_nvml *nvml, const CUuuid *from, const CUuuid *to);

/* The GPU's own clock and why it is held down; 0: unknown. */
arf_clocks arf_nvml_clocks(const arf_nvml *nvml, const CUuuid *gpu);

/* "580.159.04"; empty: unknown. */
void arf_nvml_driver(const arf_nvml *nvml, char *text, size_t size);

#endif
