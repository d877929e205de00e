/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/reach.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"

/* The word that process `from` leaves in the segment of rank `to`. The nonce is of this creation,
 * so that what an earlier one left in the same memory proves nothing. */
static uint64_t word_of(uint64_t nonce, int from, int to)
{
    return arf_hash_number(arf_hash_number(arf_hash_number(ARF_HASH_INIT, (int64_t)nonce), from),
                           to);
}

static arfuse_status draw(uint64_t *nonce, arf_error *error)
{
    if (getrandom(nonce, sizeof *nonce, 0) != (ssize_t)sizeof *nonce)
        return arf_fail(error, ARFUSE_FAILURE, "getrandom: %s", strerror(errno));
    return ARFUSE_OK;
}

static arfuse_status put(const arf_driver *driver, const arf_team *team,
                         const arf_symmetric *memory, uint64_t nonce, arf_error *error)
{
    const int self = team->bootstrap.rank;
    for (int rank = 0; rank < team->tp_size; rank++) {
        uint64_t word = word_of(nonce, self, rank);
        ARF_TRY(ARF_CU(driver, error, cuMemcpyHtoD, memory->peer[rank] + (size_t)self * sizeof word,
                       &word, sizeof word));
    }
    return ARF_CU(driver, error, cuCtxSynchronize);
}

static arfuse_status look(const arf_driver *driver, const arf_team *team,
                          const arf_symmetric *memory, uint64_t nonce, arf_error *error)
{
    for (int rank = 0; rank < team->tp_size; rank++) {
        uint64_t found[ARF_MAX_RANKS];
        ARF_TRY(ARF_CU(driver, error, cuMemcpyDtoH, found, memory->peer[rank],
                       (size_t)team->bootstrap.size * sizeof found[0]));
        for (int from = 0; from < team->bootstrap.size; from++)
            if (found[from] != word_of(nonce, from, rank))
                return arf_fail(error, ARFUSE_FAILURE,
                                "the segment of rank %d, as process %d sees it, holds %016" PRIx64
                                " where process %d wrote %016" PRIx64,
                                rank, team->bootstrap.rank, found[from], from,
                                word_of(nonce, from, rank));
    }
    return ARFUSE_OK;
}

static arfuse_status vote(const arf_team *team, const char *step, arfuse_status status,
                          arf_error *error)
{
    if (status != ARFUSE_OK)
        arf_error_prefix(error, "%s", step);
    return arf_team_vote(team, status, error);
}

arfuse_status arf_reach_check(const arf_driver *driver, const arf_team *team,
                              const arf_symmetric *memory, arf_error *error)
{
    uint64_t own = 0, all[ARF_MAX_RANKS];
    ARF_TRY(vote(team, "checking shared memory", draw(&own, error), error));
    ARF_TRY(arf_team_allgather(team, &own, all, sizeof own, error));
    ARF_TRY(vote(team, "writing to peers", put(driver, team, memory, all[0], error), error));
    return vote(team, "reading from peers", look(driver, team, memory, all[0], error), error);
}
