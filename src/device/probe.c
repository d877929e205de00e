/* SPDX-License-Identifier: Apache-2.0 */
#include "device/probe.h"

#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "device/node.h"

void arf_find(arf_findings *findings, const char *topic, const char *item, const char *format, ...)
{
    if (findings->count == ARF_MAX_FINDINGS)
        return;
    arf_finding *finding = &findings->finding[findings->count++];
    snprintf(finding->topic, sizeof finding->topic, "%s", topic);
    snprintf(finding->item, sizeof finding->item, "%s", item);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->value, sizeof finding->value, format, arguments);
    va_end(arguments);
}

static void find_limit(arf_findings *findings, const char *item, int which, const char *unit)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        arf_find(findings, "limit", item, "none");
    else
        arf_find(findings, "limit", item, "%" PRIu64 " %s", (uint64_t)limit.rlim_cur, unit);
}

/* Descriptors travel over sockets, so no scope stands in the way; other libraries may need it. */
static void find_tracing(arf_findings *findings)
{
    int scope = -1;
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &scope) != 1)
            scope = -1;
        fclose(file);
    }
    if (scope < 0)
        arf_find(findings, "limit", "ptrace", "no scope is set here (not needed)");
    else
        arf_find(findings, "limit", "ptrace", "scope %d (not needed: descriptors go over sockets)",
                 scope);
}

void arf_probe_system(arf_findings *findings)
{
    arf_node node;
    struct statvfs shm;
    glob_t nodes;
    int count = 0;
    arf_node_here(&node);
    arf_find(findings, "boot", "", "%s, network namespace %" PRIu64, node.name, node.network);
    arf_find(findings, "page", "", "%ld bytes", sysconf(_SC_PAGESIZE));
    if (statvfs("/dev/shm", &shm) == 0)
        arf_find(findings, "/dev/shm", "",
                 "%" PRIu64 " bytes free of %" PRIu64
                 " (used by MPI; buffers of the host device are memfd and do not need it)",
                 (uint64_t)shm.f_bavail * shm.f_frsize, (uint64_t)shm.f_blocks * shm.f_frsize);
    find_limit(findings, "memlock", RLIMIT_MEMLOCK, "bytes");
    find_limit(findings, "files", RLIMIT_NOFILE, "open descriptors");
    find_tracing(findings);
    if (glob("/dev/nvidia[0-9]*", 0, NULL, &nodes) == 0) {
        count = (int)nodes.gl_pathc;
        globfree(&nodes);
    }
    arf_find(findings, "nvidia", "", "%d device node%s", count, count == 1 ? "" : "s");
    int channels = 0;
    if (glob("/dev/nvidia-caps-imex-channels/channel*", 0, NULL, &nodes) == 0) {
        channels = (int)nodes.gl_pathc;
        globfree(&nodes);
    }
    arf_find(findings, "imex", "", "%d channel%s (fabric handles across nodes need one)", channels,
             channels == 1 ? "" : "s");
}
