/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of arf_device_ops that make spaces and run calls; device.h says what each does. */
#ifndef ARF_DEVICE_HOST_SPACE_H
#define ARF_DEVICE_HOST_SPACE_H

#include "device/host/host.h"

/* space.c */
arfuse_status arf_host_space_create(arf_device *device, const arf_space_spec *spec,
                                    arf_space **space, arf_error *error);
arfuse_status arf_host_space_fits(arf_device *device, const arf_space_spec *spec, arf_error *error);
void arf_host_space_destroy(arf_space *space);
arfuse_status arf_host_state(const arf_space *space, arfuse_culprit *culprit);
arfuse_status arf_host_prepare(arf_space *space, arf_pattern pattern, const arf_plan *plan, int *id,
                               arf_error *error);

/* launch.c */
arfuse_status arf_host_launch(arf_space *space, const arf_launch *launch, arf_error *error);
void arf_host_abandon(arf_space *space, const arf_launch *launch);
arfuse_status arf_host_time(arf_space *space, const arf_launch *launch, const arf_timing *timing,
                            double *us, arf_error *error);

#endif
