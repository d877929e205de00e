/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/host/host.h"
#include "device/host/wait.h"

int64_t arf_host_owned_most(int64_t tokens, int tp_size)
{
    return (tokens + tp_size - 1) / tp_size;
}

/* Puts a protocol's memory, as rules/sizing.h states it, behind the others on a line of its own. */
static arfuse_status add_part(arf_host_layout *layout, const arf_space_spec *spec,
                              arf_protocol protocol, int64_t *at, arf_error *error)
{
    const int64_t line = sizeof(arf_line);
    int64_t bytes;
    ARF_TRY(arf_mailbox_bytes(&spec->shape, protocol, spec->capacity[protocol], &bytes, error));
    *at = (layout->bytes + line - 1) / line * line;
    layout->bytes = *at + bytes;
    return ARFUSE_OK;
}

arfuse_status arf_host_layout_of(const arf_space_spec *spec, arf_host_layout *layout,
                                 arf_error *error)
{
    const int ranks = spec->shape.tp_size;
    const int64_t hidden = spec->shape.hidden_size, row = hidden * (int64_t)sizeof(arf_bf16);
    *layout = (arf_host_layout){.bytes = sizeof(arf_host_control)};
    ARF_TRY(add_part(layout, spec, ARF_LL, &layout->ll, error));
    ARF_TRY(add_part(layout, spec, ARF_BT, &layout->bt, error));
    ARF_TRY(add_part(layout, spec, ARF_HT, &layout->ht, error));
    ARF_TRY(add_part(layout, spec, ARF_UNFUSED, &layout->unfused, error));

    /* Inside the parts: contributions first, rows behind them. Slices of tokens are equal (a rule
     * of the knob), so that they need no more than whole tokens do. */
    layout->bt_source = arf_host_owned_most(spec->capacity[ARF_BT], ranks) * hidden;
    layout->bt_rows =
        layout->bt + ARF_GENERATIONS * ranks * layout->bt_source * (int64_t)sizeof(arf_bf16);
    layout->ht_rows = layout->ht + ranks * arf_host_owned_most(spec->capacity[ARF_HT], ranks) * row;
    layout->unfused_rows = layout->unfused + spec->capacity[ARF_UNFUSED] * row;
    const int64_t page = sysconf(_SC_PAGESIZE); /* 4 KiB here, 64 KiB elsewhere */
    layout->bytes = (layout->bytes + page - 1) / page * page;
    return ARFUSE_OK;
}

/* Bytes that this process may hope to get: what the machine has left, or the control group if that
 * is less. 0: the system does not say. */
static int64_t memory_left(void)
{
    long long left = 0, most = 0, used = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld kB", &left) == 1)
            break;
    left *= 1024;
    if (file)
        fclose(file);
    file = fopen("/sys/fs/cgroup/memory.max", "re"); /* says "max" when there is no limit */
    bool limited = file && fscanf(file, "%lld", &most) == 1;
    if (file)
        fclose(file);
    file = limited ? fopen("/sys/fs/cgroup/memory.current", "re") : NULL;
    if (file && fscanf(file, "%lld", &used) == 1 && (left == 0 || most - used < left))
        left = most - used > 0 ? most - used : 1;
    if (file)
        fclose(file);
    return left;
}

arfuse_status arf_host_memory_check(int64_t bytes, int ranks, arf_error *error)
{
    int64_t left = memory_left();
    if (left == 0 || bytes <= left / ranks)
        return ARFUSE_OK;
    return arf_fail(
        error, ARFUSE_FAILURE,
        "%d ranks need %lld bytes of shared memory and scratch each, and this machine has %lld "
        "left for all; lower the capacity or the number of ranks",
        ranks, (long long)bytes, (long long)left);
}

arfuse_status arf_host_region_create(const arf_host_layout *layout, int rank, int *descriptor,
                                     arf_error *error)
{
    char name[32];
    snprintf(name, sizeof name, "arfuse-rank-%d", rank);
    int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return arf_fail(error, ARFUSE_FAILURE, "memfd_create: %s", strerror(errno));
    int code;
    do /* a signal that the program handles, such as a timer's, interrupts it */
        code = posix_fallocate(made, 0, layout->bytes);
    while (code == EINTR);
    if (code != 0) {
        close(made);
        return arf_fail(error, ARFUSE_FAILURE,
                        "%lld bytes of shared memory for rank %d: %s; lower the capacity or the "
                        "number of ranks on this machine",
                        (long long)layout->bytes, rank, strerror(code));
    }
    /* No peer can shrink it under another's feet. */
    if (fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        code = errno;
        close(made);
        return arf_fail(error, ARFUSE_FAILURE, "sealing shared memory: %s", strerror(code));
    }
    *descriptor = made;
    return ARFUSE_OK;
}

arfuse_status arf_host_region_map(const arf_host_layout *layout, int rank, int descriptor,
                                  unsigned char **region, arf_error *error)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return arf_fail(error, ARFUSE_FAILURE, "asking for the size of rank %d's memory: %s", rank,
                        strerror(errno));
    if (status.st_size != layout->bytes)
        return arf_fail(error, ARFUSE_DISAGREE,
                        "the shared memory of rank %d has %lld bytes; expected %lld", rank,
                        (long long)status.st_size, (long long)layout->bytes);
    void *at = mmap(NULL, (size_t)layout->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED)
        return arf_fail(error, ARFUSE_FAILURE, "mapping %lld bytes of rank %d: %s",
                        (long long)layout->bytes, rank, strerror(errno));
    *region = at;
    return ARFUSE_OK;
}

static void arm(unsigned char *region, int64_t from, int64_t end)
{
    arf_word *word = (arf_word *)(region + from);
    for (int64_t i = 0; i < (end - from) / (int64_t)sizeof *word; i++)
        atomic_store_explicit(&word[i], ARF_HOST_EMPTY, memory_order_relaxed);
}

void arf_host_region_arm(const arf_host_layout *layout, unsigned char *region)
{
    arm(region, layout->ll, layout->ht); /* LL's mailbox and both of BT lie side by side */
}

void arf_host_region_unmap(const arf_host_layout *layout, unsigned char *region)
{
    if (region != NULL)
        munmap(region, (size_t)layout->bytes);
}
