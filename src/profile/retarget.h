/* SPDX-License-Identifier: Apache-2.0 */
/* A profile of one shape made into a profile of another: rules/retarget.h for the routes, and what
 * a file needs around them. */
#ifndef ARF_PROFILE_RETARGET_H
#define ARF_PROFILE_RETARGET_H

#include "profile/profile.h"
#include "rules/retarget.h"

/* A retargeted profile closes here, or at the capacity (design section 7). */
#define ARF_RETARGET_END 8192

/*
 * `name` is where `from` came from, for the evidence: the result names it, the digest of `from` and
 * the rule. `shape` is the target's; a switch that it leaves open becomes on. Kernel set and device
 * stay, with as many ranks a node as before. Only published profiles may leave bounds, knobs and
 * switches open (design section 7), so even a profile's own shape closes at `end` and gets numbers
 * for derived knobs. `notes` as in arf_retarget. *to is the caller's.
 */
arfuse_status arf_profile_retarget(const arf_profile *from, const char *name,
                                   const arf_shape *shape, arf_retarget_rule rule, int64_t end,
                                   arf_profile **to, char notes[ARF_RETARGET_NOTES],
                                   arf_error *error);

#endif
