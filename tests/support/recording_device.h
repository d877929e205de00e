/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that computes nothing and writes down what it is asked: which plans
 * were launched with which operands. What a launch does can be planted.
 */
#ifndef TESTS_SUPPORT_RECORDING_DEVICE_H
#define TESTS_SUPPORT_RECORDING_DEVICE_H

#include "device/device.h"

enum { RECORDED_LAUNCHES = 64, RECORDED_PLANS = 300 };

typedef struct recorded_launch {
    arf_launch launch; /* its operands point into the workspace: see `operands` */
    arf_plan plan;
    arfuse_operands operands; /* of the first local rank */
} recorded_launch;

typedef struct recording {
    int launches; /* all of them; the last RECORDED_LAUNCHES are kept */
    recorded_launch launch[RECORDED_LAUNCHES];
    arf_plan plan[RECORDED_PLANS];
    int plans;
    int fail_launch;          /* 1 + index of the launch that fails; 0: none */
    unsigned lacks;           /* protocols, by bit, that the device says it has not */
    arf_protocol unsupported; /* prepare refuses it; ARF_PROTOCOLS: none */
    int abandoned;            /* times that the rest of a call was given up */
    bool profiled;            /* somebody listens to ranges ... */
    char range[128];          /* ... and this is the last one, */
    int ranges, open_ranges;
    bool launched_in_range; /* the last launch was inside of one */
    bool capturing;
    int graphs; /* that still use the space */
    int waits;  /* synchronizations and downloads */
    int allocations, releases;
} recording;

/* The one recording of the program; tests reset it. */
extern recording recorded;
void recording_reset(void);
/* Of the k-th launch from the end: 0 is the last one. */
const recorded_launch *recorded_last(int k);

/* What the device is. */
extern const arf_device_key recorded_key;

/* For arf_workspace_make. */
arfuse_status recording_open(const arf_device_options *options, const arf_team *team,
                             arf_device **device, arf_error *error);

#endif
