/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/library_recipe.h"

#include <stdio.h>

#define REDUCE_THREADS 256
#define MARK_THREADS 32

/* The finalize kernel and the threads of the norm are those of unfused. */
arfuse_status arf_recipe_library(const arf_shape *shape, arf_pattern pattern, const arf_plan *plan,
                                 arf_recipe *recipe, arf_error *error)
{
    const bool summed = plan->numerics != ARF_FIXED;
    arf_plan kernels = *plan;
    kernels.numerics = ARF_FIXED;
    arf_recipe own;
    ARF_TRY(arf_recipe_make(shape, 1, pattern, &kernels, &own, error));
    *recipe = (arf_recipe){.steps = 0};
    if (pattern == ARF_FINALIZE)
        recipe->step[recipe->steps++] = own.step[0];
    if (!summed) {
        arf_step *reduce = &recipe->step[recipe->steps++];
        arf_recipe_plain(shape, 1, "library_reduce", REDUCE_THREADS, reduce);
        reduce->rule = ARF_GRID_OWNED;
    }
    arf_step *norm = &recipe->step[recipe->steps++];
    *norm = own.step[own.steps - 1];
    norm->kernel = "library_norm";
    snprintf(norm->define[norm->defines++], ARF_DEFINE_TEXT, "-DARF_SUMMED=%d", summed);
    for (int i = 0; i < recipe->steps; i++) {
        recipe->step[i].dependent = false; /* NCCL's kernels do not take part in it */
        recipe->step[i].from_scratch = false;
    }
    return ARFUSE_OK;
}

void arf_recipe_mark(const arf_shape *shape, arf_step *step)
{
    arf_recipe_plain(shape, 1, "library_mark", MARK_THREADS, step);
}
