/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes of a shape that was measured, made into routes of one that was not:
 * tunings by rule, bounds by a stated scale. A pure function; what it gives is a
 * guess and says so (`method: "retargeted"`).
 */
#ifndef ARF_RULES_RETARGET_H
#define ARF_RULES_RETARGET_H

#include "base/error.h"
#include "rules/legal.h"

/*
 * v1 (SGLang pull request 34134): HT takes the derived split; reduction_warps only steps down; LL
 *     and BT tunings and all bounds stay as they are; without HT there is no result at all.
 * v2 (a later module of SGLang): also tries more reduction_warps, drops rms_shard_major where it is
 *     illegal, starts from the presets for 16 ranks at 16 and more; where HT fails for one pattern
 *     both lose it, and the last BT route takes its range.
 * scaled (arfuse's own, the default): HT as v2, with fewer stages where shared memory ends, and
 *     the target's best seed where the derived tuning is unsafe; LL's cluster covers the new token
 *     in as many trips as before, prefetching all K rows stays so; bounds scale (below).
 *
 * v1 and v2 refuse by name what the public constructors accept and the kernels cannot run.
 */
typedef enum arf_retarget_rule {
    ARF_RETARGET_SCALED,
    ARF_RETARGET_V1,
    ARF_RETARGET_V2,
    ARF_RETARGET_RULES
} arf_retarget_rule;
const char *arf_retarget_rule_name(arf_retarget_rule rule); /* "scaled", "v1", "v2" */
bool arf_retarget_rule_parse(const char *name, arf_retarget_rule *rule);

/*
 * The scale of `scaled`: a bound is where two protocols' traffic costs what their fixed times
 * differ by, so it keeps the bytes that reach a GPU. An LL bound goes with 1 / (H R), since LL
 * receives R M H values; every other one with 1 / H. Rounded down, at least 1, and not raised above
 * what anybody has swept (LL 64, BT 2048): LL's mailbox grows with R times its bound. A route that
 * is left without tokens falls out. The last bound of a pattern is where measuring stopped, not a
 * crossing: it stays.
 */
int64_t arf_scaled_bound(int64_t bound, arf_protocol protocol, const arf_shape *from,
                         const arf_shape *to);

#define ARF_RETARGET_NOTES 1024

/*
 * `from` and `to` are of one kernel set; `source` are the routes of both patterns. `end` closes an
 * open last bound and cuts later ones (ARF_OPEN_BOUND: leaves them open). `notes` gets one sentence
 * a line for everything that was not simply carried over, such as why HT was dropped; "" when
 * nothing. The same shape as before gives the same routes, but for tunings that are not known
 * (null): `scaled` takes the target's best seed for them, v1 and v2 cannot. Fails with
 * ARFUSE_PROFILE when the rule cannot serve the target, naming pattern, protocol and broken rule;
 * `target` is then unspecified.
 */
arfuse_status arf_retarget(const arf_problem *from, const arf_routes source[ARF_PATTERNS],
                           const arf_problem *to, arf_retarget_rule rule, int64_t end,
                           arf_routes target[ARF_PATTERNS], char notes[ARF_RETARGET_NOTES],
                           arf_error *error);

#endif
