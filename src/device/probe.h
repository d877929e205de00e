/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a machine offers, found out in seconds and before anything is tuned: findings in words, for
 * people and as data. Local and without a team, so that it also tells of a machine on which no
 * device opens.
 */
#ifndef ARF_DEVICE_PROBE_H
#define ARF_DEVICE_PROBE_H

#include "base/error.h"

typedef struct arf_finding {
    char topic[24]; /* "gpu" */
    char item[24];  /* "0"; empty: the topic has one */
    char value[320];
} arf_finding;

#define ARF_MAX_FINDINGS 512
typedef struct arf_findings {
    int count;
    arf_finding finding[ARF_MAX_FINDINGS]; /* more are dropped: 8 GPUs have 56 links */
} arf_findings;

void arf_find(arf_findings *findings, const char *topic, const char *item, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Node, limits of memory, sockets and tracing. */
void arf_probe_system(arf_findings *findings);

#ifdef ARF_CUDA
/*
 * Libraries with versions and paths, GPUs, trial allocations of every way that memory could travel,
 * links with their bandwidth and what a flag takes. No multicast object is made: only the attribute
 * is read. Makes a context on every visible GPU and lets it go.
 */
void arf_probe_cuda(arf_findings *findings);
#endif

#endif
