/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Communicators that do not block are there since 2.14 (NCCL release notes). */
#define OLDEST_VERSION 21400
#define OLDEST_NAME "NCCL 2.14"

arfuse_status arf_nccl_open(arf_nccl *nccl, arf_error *error)
{
    *nccl = (arf_nccl){.library = NULL};
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return arf_fail(error, ARFUSE_NOT_SUPPORTED, "cannot open NCCL: %s", dlerror());
    const struct {
        const char *name;
        void **function;
    } wanted[] = {
        {"ncclGetVersion", (void **)&nccl->get_version},
        {"ncclGetErrorString", (void **)&nccl->error_text},
        {"ncclGetUniqueId", (void **)&nccl->get_id},
        {"ncclCommInitRankConfig", (void **)&nccl->comm_init},
        {"ncclCommAbort", (void **)&nccl->comm_abort},
        {"ncclCommGetAsyncError", (void **)&nccl->comm_error},
        {"ncclGetLastError", (void **)&nccl->last_error},
        {"ncclGroupStart", (void **)&nccl->group_start},
        {"ncclGroupEnd", (void **)&nccl->group_end},
        {"ncclSend", (void **)&nccl->send},
        {"ncclRecv", (void **)&nccl->receive},
        {"ncclAllGather", (void **)&nccl->all_gather},
        {"ncclAllReduce", (void **)&nccl->all_reduce},
    };
    nccl->library = library;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        *wanted[i].function = dlsym(library, wanted[i].name);
        if (*wanted[i].function == NULL) {
            arf_nccl_close(nccl);
            return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                            "libnccl.so.2 has no %s: " OLDEST_NAME " or later is needed",
                            wanted[i].name);
        }
    }
    if (nccl->get_version(&nccl->version) != 0 || nccl->version < OLDEST_VERSION) {
        int version = nccl->version;
        arf_nccl_close(nccl);
        return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                        "libnccl.so.2 is version %d: " OLDEST_NAME " or later is needed", version);
    }
    return ARFUSE_OK;
}

void arf_nccl_close(arf_nccl *nccl)
{
    if (nccl->library != NULL)
        dlclose(nccl->library);
    nccl->library = NULL;
}

arfuse_status arf_nccl_check(const arf_nccl *nccl, int result, const char *call, arf_error *error)
{
    if (result == 0)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_FAILURE, "%s: %s (%d)", call, nccl->error_text(result), result);
}

void arf_nccl_text(const arf_nccl *nccl, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "NCCL %d.%d.%d", nccl->version / 10000,
                                   nccl->version / 100 % 100, nccl->version % 100);
    for (char **variable = environ; *variable != NULL && used < size; variable++)
        if (strncmp(*variable, "NCCL_", 5) == 0)
            used += (size_t)snprintf(text + used, size - used, ", %s", *variable);
    if (used >= size)
        strcpy(text + size - sizeof "...", "...");
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}
