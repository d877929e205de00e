/* SPDX-License-Identifier: Apache-2.0 */
/* The options of create: copied, completed from the environment, checked, compared. */
#ifndef ARF_RUNTIME_OPTIONS_H
#define ARF_RUNTIME_OPTIONS_H

#include "device/device.h"
#include "runtime/agree.h"

/* Copies what the caller's version knows over this version's defaults. */
arfuse_status arf_options_take(const arfuse_options *from, arfuse_options *to, arf_error *error);
/* Checks every range and resolves what was left to the environment or the default. */
arfuse_status arf_options_complete(arfuse_options *options, arf_error *error);
/* options.label, or what tells workspaces of other shapes apart. */
void arf_options_label(const arfuse_options *options, char label[ARF_LABEL_TEXT]);
/* Collective: what all ranks must have passed alike. */
arfuse_status arf_options_agree(const arf_team *team, const arfuse_options *options,
                                arf_error *error);

#endif
