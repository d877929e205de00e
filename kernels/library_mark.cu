/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Around what goes by a library, whose waits end when it likes: counts the calls that begin, and
 * with flag ARF_MARK_ENDED says that all of them have ended. The host sees both, and so a call that
 * stays. One thread.
 */
#include "wait.cuh"

extern "C" __global__ void __launch_bounds__(ARF_MAX_THREADS, 1)
    arf_library_mark(const __grid_constant__ arf_call call,
                     const __grid_constant__ arf_team_view team,
                     const __grid_constant__ arf_operand_table)
{
    arf_control *control = arf_control_of(team, team.first_rank);
    if (!arf_is_first_thread())
        return;
    if (!(call.flags & ARF_MARK_ENDED))
        arf_send_word(&control->library_calls, control->library_calls + 1);
    arf_send_word(team.mirror + (call.flags & ARF_MARK_ENDED ? ARF_MIRROR_ENDED : ARF_MIRROR_BEGUN),
                  control->library_calls);
}
