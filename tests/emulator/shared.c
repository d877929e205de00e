/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units and the shared memory of blocks. A unit's __shared__ variables are its
 * thread-local storage; there is one OS thread, so there is one copy, and the
 * block that runs has its contents there.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/state.h"

/* Bytes behind the dynamic part that must not change. */
enum { GUARD = 64, GUARD_BYTE = 0xa5 };

/* ---- units ---------------------------------------------------------------------------------- */

static int find_storage(struct dl_phdr_info *info, size_t size, void *data)
{
    emu_unit *unit = data;
    bool here = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + part->p_vaddr, at = (uintptr_t)unit->kernel;
        if (part->p_type == PT_LOAD && at >= start && at < start + part->p_memsz)
            here = true;
    }
    for (int i = 0; here && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            unit->shared = info->dlpi_tls_data;
            unit->shared_bytes = info->dlpi_phdr[i].p_memsz;
        }
    return here;
}

emu_unit *emu_unit_open(const char *path, const char *name, char *why, size_t room)
{
    emu_unit *unit = emu_unit_native(NULL, name);
    unit->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (unit->library == NULL) {
        snprintf(why, room, "%s", dlerror());
        emu_unit_close(unit);
        return NULL;
    }
    void *(*stash)(void) = NULL;
    *(void **)&unit->kernel = dlsym(unit->library, "emu_unit_kernel");
    *(void **)&stash = dlsym(unit->library, "emu_unit_stash");
    if (unit->kernel != NULL && stash != NULL) {
        unit->dynamic = stash(); /* from here on this OS thread has the storage */
        dl_iterate_phdr(find_storage, unit);
    }
    if (unit->shared == NULL) {
        snprintf(why, room, "%s: not made from unit.cpp", path);
        emu_unit_close(unit);
        return NULL;
    }
    return unit;
}

emu_unit *emu_unit_native(emu_kernel kernel, const char *name)
{
    emu_unit *unit = calloc(1, sizeof *unit);
    if (unit == NULL)
        abort();
    unit->kernel = kernel;
    snprintf(unit->name, sizeof unit->name, "%s", name);
    return unit;
}

void emu_unit_close(emu_unit *unit)
{
    if (unit->library != NULL)
        dlclose(unit->library);
    free(unit);
}

/* ---- a block's copy --------------------------------------------------------------------------
 *
 * In this order: what stands before the dynamic part in the unit, what stands behind it, the
 * dynamic part, the guard.
 */

static size_t before(const emu_unit *unit)
{
    return (size_t)(unit->dynamic - unit->shared);
}
static size_t behind(const emu_unit *unit)
{
    return unit->shared_bytes - before(unit) - EMU_MOST_DYNAMIC;
}

size_t emu_shared_image(const emu_launch *launch)
{
    if (launch->unit->shared == NULL)
        return 0;
    return before(launch->unit) + behind(launch->unit) + launch->dynamic_bytes + GUARD;
}

static size_t guarded(const emu_block *block)
{
    const size_t room = EMU_MOST_DYNAMIC - block->grid->launch.dynamic_bytes;
    return block->grid->launch.dynamic_bytes + (room < GUARD ? room : GUARD);
}

static void save(emu_block *block)
{
    const emu_unit *unit = block->grid->launch.unit;
    memcpy(block->shared, unit->shared, before(unit));
    memcpy(block->shared + before(unit), unit->dynamic + EMU_MOST_DYNAMIC, behind(unit));
    memcpy(block->shared + before(unit) + behind(unit), unit->dynamic, guarded(block));
}

static void load(const emu_block *block)
{
    const emu_unit *unit = block->grid->launch.unit;
    memcpy(unit->shared, block->shared, before(unit));
    memcpy(unit->dynamic + EMU_MOST_DYNAMIC, block->shared + before(unit), behind(unit));
    memcpy(unit->dynamic, block->shared + before(unit) + behind(unit), guarded(block));
}

void emu_shared_enter(emu_block *block)
{
    emu_unit *unit = block->grid->launch.unit;
    if (unit->shared == NULL || unit->live == block)
        return;
    if (!block->has_run) /* whatever another kernel left there; as floats, NaN */
        memset(block->shared, 0xff,
               before(unit) + behind(unit) + block->grid->launch.dynamic_bytes);
    if (!block->has_run)
        memset(block->shared + before(unit) + behind(unit) + block->grid->launch.dynamic_bytes,
               GUARD_BYTE, GUARD);
    if (unit->live != NULL)
        save(unit->live);
    load(block);
    unit->live = block;
}

void emu_shared_leave(emu_block *block)
{
    if (block->grid->launch.unit->live == block)
        block->grid->launch.unit->live = NULL;
}

const char *emu_shared_check(emu_block *block)
{
    const emu_unit *unit = block->grid->launch.unit;
    if (unit->live != block)
        return NULL;
    for (size_t i = block->grid->launch.dynamic_bytes; i < guarded(block); i++)
        if ((unsigned char)unit->dynamic[i] != GUARD_BYTE)
            return "wrote behind its dynamic shared memory";
    return NULL;
}

/* Where `at`, an address of the unit's storage, stands for that block. */
char *emu_shared_of(emu_block *block, const void *at)
{
    const emu_unit *unit = block->grid->launch.unit;
    const char *address = at;
    if (unit->shared == NULL || address < unit->shared ||
        address >= unit->shared + unit->shared_bytes)
        return NULL;
    if (unit->live == block)
        return (char *)(uintptr_t)address;
    size_t offset = (size_t)(address - unit->shared);
    if (offset < before(unit))
        return block->shared + offset;
    if (offset >= before(unit) + EMU_MOST_DYNAMIC)
        return block->shared + offset - EMU_MOST_DYNAMIC;
    offset += behind(unit);
    return offset < emu_shared_image(&block->grid->launch) ? block->shared + offset : NULL;
}
