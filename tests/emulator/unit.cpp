/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One kernel as a shared object: g++ -include primitives.h -DEMU_KERNEL=ll_publish and the macros
 * of its recipe. Its parameters have the sizes of this compilation, as on a GPU.
 */
#define EMU_TEXT_(x) #x
#define EMU_TEXT(x) EMU_TEXT_(x)
#define EMU_JOIN_(a, b) a##b
#define EMU_JOIN(a, b) EMU_JOIN_(a, b)

/* Every kernel that has dynamic shared memory calls it arf_stash. */
alignas(128) thread_local arf_pack arf_stash[EMU_MOST_DYNAMIC / sizeof(arf_pack)];

#include EMU_TEXT(EMU_KERNEL.cu)

extern "C" __attribute__((visibility("default"))) void *emu_unit_stash(void)
{
    return arf_stash;
}
extern "C" __attribute__((visibility("default"))) void
emu_unit_kernel(const void *call, const void *team, const void *operands)
{
    EMU_JOIN(arf_, EMU_KERNEL)
    (*(const arf_call *)call, *(const arf_team_view *)team, *(const arf_operand_table *)operands);
}
