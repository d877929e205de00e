/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/busy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda_device.h"

enum { NAMES = 64 };

struct arf_busy {
    arf_busy *next;
    CUdevice device;
    CUdeviceptr word;
    volatile arf_word *broken; /* host address */
    arf_word *broken_there;    /* the same, as kernels see it */
    uint32_t numbers;
    int users;
    char name[NAMES][ARF_LABEL_TEXT];
};

/* The GPUs of this process that are watched: its workspaces find each other here. Touched at
 * creation and destruction alone. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static arf_busy *list;

static void drop(const arf_driver *driver, arf_busy *busy)
{
    if (busy->broken != NULL)
        driver->cuMemFreeHost((void *)(uintptr_t)busy->broken);
    if (busy->word != 0)
        driver->cuMemFree(busy->word);
    free(busy);
}

static arfuse_status fill(const arf_driver *driver, arf_busy *busy, arf_error *error)
{
    void *host;
    CUdeviceptr there;
    ARF_TRY(ARF_CU(driver, error, cuMemAlloc, &busy->word, sizeof(arf_word)));
    ARF_TRY(ARF_CU(driver, error, cuMemsetD8, busy->word, 0, sizeof(arf_word)));
    ARF_TRY(ARF_CU(driver, error, cuMemHostAlloc, &host, sizeof(arf_word),
                   CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    busy->broken = host;
    *busy->broken = 0;
    ARF_TRY(ARF_CU(driver, error, cuMemHostGetDevicePointer, &there, host, 0));
    busy->broken_there = (arf_word *)(uintptr_t)there;
    return ARF_CU(driver, error, cuCtxSynchronize);
}

static arfuse_status find_or_make(const arf_cuda *device, arf_busy **found, arf_error *error)
{
    for (arf_busy *at = list; at != NULL; at = at->next)
        if (at->device == device->device) {
            *found = at;
            return ARFUSE_OK;
        }
    arf_busy *made = calloc(1, sizeof *made);
    if (made == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the busy word of a GPU");
    made->device = device->device;
    arfuse_status status = fill(&device->driver, made, error);
    if (status != ARFUSE_OK) {
        drop(&device->driver, made);
        return status;
    }
    made->next = list;
    *found = list = made;
    return ARFUSE_OK;
}

arfuse_status arf_busy_join(const arf_cuda_space *space, arf_busy **busy, uint32_t *number,
                            arf_error *error)
{
    pthread_mutex_lock(&list_lock);
    arfuse_status status = find_or_make((const arf_cuda *)space->base.device, busy, error);
    if (status == ARFUSE_OK) {
        (*busy)->users++;
        *number = ++(*busy)->numbers;
        snprintf((*busy)->name[*number % NAMES], ARF_LABEL_TEXT, "%s", space->base.spec.label);
    }
    pthread_mutex_unlock(&list_lock);
    return status;
}

void arf_busy_leave(const arf_cuda_space *space, arf_busy *busy)
{
    if (busy == NULL)
        return;
    pthread_mutex_lock(&list_lock);
    if (--busy->users == 0) {
        arf_busy **at = &list;
        while (*at != busy)
            at = &(*at)->next;
        *at = busy->next;
        drop(&((const arf_cuda *)space->base.device)->driver, busy);
    }
    pthread_mutex_unlock(&list_lock);
}

arf_order_mark arf_busy_mark(const arf_busy *busy, uint32_t number, bool enter)
{
    return (arf_order_mark){.busy = (arf_word *)(uintptr_t)busy->word,
                            .broken = busy->broken_there,
                            .number = number,
                            .enter = enter};
}

arfuse_status arf_busy_state(const arf_busy *busy, uint32_t number, arf_error *error)
{
    const arf_word word = busy == NULL ? 0 : *busy->broken;
    const uint32_t holder = (uint32_t)(word >> 32), intruder = (uint32_t)word;
    if (word == 0 || (number != holder && number != intruder))
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_IN_USE,
                    "ordering rule: on the GPU a call of workspace %s began while one of workspace "
                    "%s was running; calls of all workspaces that share a GPU run one after "
                    "another: order their streams and graphs",
                    busy->name[intruder % NAMES], busy->name[holder % NAMES]);
}
