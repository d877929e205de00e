/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels around NCCL's collectives. Pure, as recipe.h is. */
#ifndef ARF_DEVICE_CUDA_LIBRARY_RECIPE_H
#define ARF_DEVICE_CUDA_LIBRARY_RECIPE_H

#include "device/cuda/recipe.h"

/* For one local rank: the finalize, the sum by the tree where the numerics are fixed, the norm. */
arfuse_status arf_recipe_library(const arf_shape *shape, arf_pattern pattern, const arf_plan *plan,
                                 arf_recipe *recipe, arf_error *error);

/* What marks the begin and the end of what goes by NCCL. */
void arf_recipe_mark(const arf_shape *shape, arf_step *step);

#endif
