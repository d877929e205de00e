/* SPDX-License-Identifier: Apache-2.0 */
/* The model device in one process that hosts all ranks: no exchange with others is needed. */
#ifndef TESTS_SUPPORT_MODEL_CASE_H
#define TESTS_SUPPORT_MODEL_CASE_H

#include "device/device.h"

#define MODEL_RANKS 8
#define MODEL_FIXTURES "tests/fixtures/model/"

extern const arf_shape model_shape;

typedef struct model_stand {
    arf_team team;
    arf_device *device;
    arf_space *space;
} model_stand;

/* Room for so many tokens of every protocol. */
arf_space_spec model_spec(int64_t capacity);

/* `spec` as in --device: "model:FILE". */
void model_open(model_stand *stand, const char *spec);
void model_open_space(model_stand *stand, int64_t capacity);
/* Both. */
void model_set_up(model_stand *stand, const char *spec);
void model_tear_down(model_stand *stand);

/* The fallback tuning. */
arf_plan model_plan(arf_pattern pattern, arf_protocol protocol);
int model_prepared(const model_stand *stand, arf_pattern pattern, arf_protocol protocol);
arf_launch model_launch(const model_stand *stand, arf_protocol protocol, int64_t tokens);
arfuse_status model_time(const model_stand *stand, const arf_launch *launch, int64_t round,
                         double us[MODEL_RANKS], arf_error *error);

#endif
