/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl, opened at run time: the collectives of the unfused path where ranks cannot map each
 * other's memory, and where the user lets the library choose the order of sums. The few types below
 * are those of nccl.h, whose numbers do not change within NCCL 2.
 */
#ifndef ARF_DEVICE_CUDA_NCCL_H
#define ARF_DEVICE_CUDA_NCCL_H

#include <cuda.h>
#include <stddef.h>

#include "base/error.h"

typedef struct arf_nccl_id { /* ncclUniqueId */
    char data[128];
} arf_nccl_id;
typedef void *arf_nccl_comm; /* ncclComm_t */

enum { ARF_NCCL_BF16 = 9, ARF_NCCL_SUM = 0 }; /* ncclBfloat16, ncclSum */
enum { ARF_NCCL_IN_PROGRESS = 7 };            /* ncclInProgress */

/* ncclConfig_t as of NCCL 2.14; a later one takes its defaults for what it has more. */
typedef struct arf_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} arf_nccl_config;
#define ARF_NCCL_MAGIC 0xcafebeefu
#define ARF_NCCL_CONFIG_VERSION 21400u

typedef struct arf_nccl {
    void *library; /* NULL: not open */
    int version;   /* 22809: 2.28.9 */
    int (*get_version)(int *);
    const char *(*error_text)(int);
    int (*get_id)(arf_nccl_id *);
    int (*comm_init)(arf_nccl_comm *, int, arf_nccl_id, int, const arf_nccl_config *);
    int (*comm_abort)(arf_nccl_comm);
    int (*comm_error)(arf_nccl_comm, int *);
    const char *(*last_error)(arf_nccl_comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *, size_t, int, int, arf_nccl_comm, CUstream);
    int (*receive)(void *, size_t, int, int, arf_nccl_comm, CUstream);
    int (*all_gather)(const void *, void *, size_t, int, arf_nccl_comm, CUstream);
    int (*all_reduce)(const void *, void *, size_t, int, int, arf_nccl_comm, CUstream);
} arf_nccl;

/* ARFUSE_NOT_SUPPORTED says what is absent or too old. */
arfuse_status arf_nccl_open(arf_nccl *nccl, arf_error *error);
void arf_nccl_close(arf_nccl *nccl); /* accepts a zeroed one */

/* ARFUSE_OK for ncclSuccess; else the message names call, number and text. */
arfuse_status arf_nccl_check(const arf_nccl *nccl, int result, const char *call, arf_error *error);

/* "NCCL 2.28.9, NCCL_NVLS_ENABLE=0": the version and every NCCL_ variable that is set, as far as
 * there is room ("..."); what is not plain ASCII is '?'. */
void arf_nccl_text(const arf_nccl *nccl, char *text, size_t size);

#endif
