/* SPDX-License-Identifier: Apache-2.0 */
/* The environment, read at creation only. */
#ifndef ARF_RUNTIME_ENVIRONMENT_H
#define ARF_RUNTIME_ENVIRONMENT_H

#include "base/error.h"
#include "base/log.h"
#include "rules/words.h"

/* NULL when unset or empty. */
const char *arf_environment(const char *variable);

/* Puts the environment in the place of what the options leave open: -1 of checked and shadow_every,
 * ARFUSE_ROUTES_AUTO of routes. */
arfuse_status arf_environment_options(arfuse_options *options, arf_error *error);

/* One warning for each variable that begins with ARFUSE_ and that arfuse does not know. */
void arf_environment_warn(const arf_log *log);

#endif
