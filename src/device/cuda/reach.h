/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof that mapped segments are what they are taken for: every process writes its own word through
 * every pointer, and every process finds every word where it belongs. A pointer that maps nothing,
 * a stranger's memory or another rank's segment does not pass.
 */
#ifndef ARF_DEVICE_CUDA_REACH_H
#define ARF_DEVICE_CUDA_REACH_H

#include "device/cuda/symmetric.h"

/* What a segment must have at least: a word a process. */
#define ARF_REACH_BYTES (ARF_MAX_RANKS * 8)

/* Collective; votes. Overwrites the first ARF_REACH_BYTES of all segments. */
arfuse_status arf_reach_check(const arf_driver *driver, const arf_team *team,
                              const arf_symmetric *memory, arf_error *error);

#endif
