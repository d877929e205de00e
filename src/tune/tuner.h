/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every stage is given: the options, the processes, the team and the device, opened once a
 * run. All functions are collective and leave every rank with the same status.
 */
#ifndef ARF_TUNE_TUNER_H
#define ARF_TUNE_TUNER_H

#include "device/device.h"
#include "tune/group.h"
#include "tune/options.h"
#include "tune/placement.h"

typedef struct arf_tuner {
    const arf_tune_options *options;
    arf_group *group;
    arf_placement placement;
    arf_team team;
    arf_log log;
    arf_device *device;
    arf_device_key key;
    arf_device_evidence evidence;
    double started;        /* on the device's clock */
    double budget_seconds; /* of the whole run */
} arf_tuner;

/* Placement, team, device. On failure nothing is left open. */
arfuse_status arf_tuner_open(arf_tuner *tuner, const arf_tune_options *options, arf_group *group,
                             arf_error *error);
void arf_tuner_close(arf_tuner *tuner);

/* "host on shm" or "NVIDIA B300 (10.3, 148 SMs) on nvlink". */
void arf_tuner_device_text(const arf_device_key *key, char *text, size_t size);

/* Seconds since the run began, as rank 0's clock says. */
arfuse_status arf_tuner_seconds(const arf_tuner *tuner, double *seconds, arf_error *error);
/* Rank 0's number on every rank. */
arfuse_status arf_tuner_decide(const arf_tuner *tuner, int64_t *number, arf_error *error);

/* The first words: device, placement, budget. For when nothing that is only a wrong argument can
 * come up any more, so that such a mistake leaves one message. */
void arf_tuner_greet(const arf_tuner *tuner);

/* The budget when --budget is not given. */
double arf_tuner_default_budget(arf_link link);

#endif
