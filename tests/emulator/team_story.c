/* SPDX-License-Identifier: Apache-2.0 */
/* A run: the calls that a seed invents, who is lost in them, and the verdict on what they left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/team_state.h"

/* ---- comparison ------------------------------------------------------------------------------ */

/* `or_nan`: values of a row that was given up are NaN instead. */
static bool compare(const char *what, const void *got, const void *expected, int64_t values,
                    int hidden, size_t width, bool or_nan, char *why, size_t room)
{
    if (got == NULL)
        return true;
    for (int64_t i = 0; i < values; i++) {
        uint32_t have = 0, want = 0;
        memcpy(&have, (const char *)got + (size_t)i * width, width);
        memcpy(&want, (const char *)expected + (size_t)i * width, width);
        if (have == want || (or_nan && have == ARF_BF16_NAN))
            continue;
        snprintf(why, room, "%s, token %lld, element %lld: 0x%x instead of 0x%x", what,
                 (long long)(i / hidden), (long long)(i % hidden), have, want);
        return false;
    }
    return true;
}

static bool check_call(const team_state *state, const team_call *call, int rank, bool or_nan,
                       char *why, size_t room)
{
    const int hidden = state->team->shape.hidden_size;
    const int64_t values = call->tokens * hidden;
    const arf_reference_call reference = {.pattern = call->plan->pattern,
                                          .shape = state->team->shape,
                                          .tokens = call->tokens,
                                          .epsilon = call->data.epsilon,
                                          .weight_bias = call->data.weight_bias,
                                          .routed_scale = call->data.routed_scale,
                                          .operands = call->given};
    arf_bf16 *x = malloc((size_t)values * sizeof *x), *norm = malloc((size_t)values * sizeof *norm);
    float *inverse = malloc((size_t)call->tokens * sizeof *inverse);
    const arfuse_operands *seen = &call->seen[rank];
    char what[160];
    if (x == NULL || norm == NULL || inverse == NULL ||
        !arf_reference(&reference, x, norm, inverse))
        abort();
    bool good = compare("residual_out", seen->residual_out, x, values, hidden, 2, or_nan, what,
                        sizeof what);
    if (good && state->team->shape.rms_norm == ARF_ON)
        good =
            (or_nan || compare("inverse rms", call->inverse[rank], inverse, call->tokens, 1, 4,
                               false, what, sizeof what)) &&
            compare("norm_out", seen->norm_out, norm, values, hidden, 2, or_nan, what, sizeof what);
    if (!good)
        snprintf(why, room, "rank %d: %s", rank, what);
    free(x);
    free(norm);
    free(inverse);
    return good;
}

static bool all_nan(const arf_bf16 *row, int64_t count)
{
    for (int64_t i = 0; row != NULL && i < count; i++)
        if (row[i] != ARF_BF16_NAN)
            return false;
    return true;
}

/* ---- the story ------------------------------------------------------------------------------- */

static void invent_call(team_state *state, team_call *call)
{
    const emu_team *team = state->team;
    call->plan = &team->plan[emu_random(state->engine, (uint64_t)team->plans)];
    call->then = NULL;
    while (call->plan->plan.protocol == ARF_SEPARATE &&
           (call->then == NULL || call->then->pattern != ARF_ALLREDUCE))
        call->then = &team->plan[emu_random(state->engine, (uint64_t)team->plans)];
    call->tokens = (int64_t)emu_random(state->engine, (uint64_t)team->about->capacity + 1);
    if (emu_random(state->engine, 3) == 0)
        call->tokens = 1;
    const uint64_t kind = emu_random(state->engine, 5);
    call->data = arf_trial_data_of(&team->shape, call->tokens > 0 ? call->tokens : 1,
                                   kind < 2   ? ARF_TRIAL_RANDOM
                                   : kind < 4 ? ARF_TRIAL_ADVERSARIAL
                                              : ARF_TRIAL_COUNT_RANKS,
                                   emu_random(state->engine, 1000));
    if (kind == 1) { /* random values with the other type of weights would need other slots */
        call->data.epsilon = 1e-5f;
        call->data.weight_bias = 1.0f;
    }
    call->residual_in_place = emu_random(state->engine, 3) == 0;
    call->input_in_place = emu_random(state->engine, 3) == 0;
    for (int rank = 0; rank < team->about->ranks && call->tokens > 0; rank++)
        team_make_operands(state, call, rank);
}

static void describe_call(const team_state *state, int index, char *text, size_t room)
{
    const team_call *call = &state->call[index];
    snprintf(text, room, "call %d (%s %s, M=%lld, %s)", index,
             arf_protocol_name(call->plan->plan.protocol), arf_pattern_name(call->plan->pattern),
             (long long)call->tokens, arf_trial_kind_name(call->data.kind));
}

static bool untouched(const arf_bf16 *row, const arf_bf16 *in_place, int64_t count)
{
    if (row == in_place)
        return true; /* what stands there need not be poison */
    for (int64_t i = 0; row != NULL && i < count; i++)
        if (row[i] != POISON)
            return false;
    return true;
}

/*
 * After a rank was lost: the calls before are right, those behind it NaN. The one in question is
 * NaN too when it did nothing of that call, since every row needs its contribution; else it is one
 * or the other row by row. Of a call that is one kernel nothing ran for a rank that was left out of
 * it.
 */
typedef enum outcome { RIGHT, IS_NAN, RIGHT_OR_NAN, UNTOUCHED } outcome;
static outcome outcome_of(const team_state *state, int index, int rank)
{
    const team_story *story = state->story;
    if (index < state->lost_at)
        return RIGHT;
    if (index > state->lost_at)
        return IS_NAN;
    if (!story->mute)
        return story->lost_steps > 0 ? RIGHT_OR_NAN : IS_NAN;
    return rank == state->team->about->ranks - 1 && state->call[index].plan->recipe.steps == 1
               ? UNTOUCHED
               : IS_NAN;
}

static bool check_rank(const team_state *state, int rank, char *why, size_t room)
{
    const int hidden = state->team->shape.hidden_size;
    for (int i = 0; i < state->story->calls; i++) {
        const team_call *call = &state->call[i];
        const arfuse_operands *seen = &call->seen[rank];
        const int64_t values = call->tokens * hidden;
        const outcome wanted = outcome_of(state, i, rank);
        char name[160], what[320] = "";
        bool good;
        if (call->tokens == 0)
            continue;
        describe_call(state, i, name, sizeof name);
        if (wanted == IS_NAN)
            good = all_nan(seen->residual_out, values) && all_nan(seen->norm_out, values);
        else if (wanted == UNTOUCHED)
            good = untouched(seen->residual_out, seen->residual, values) &&
                   untouched(seen->norm_out, seen->input, values);
        else
            good = check_call(state, call, rank, wanted == RIGHT_OR_NAN, what, sizeof what);
        if (good)
            continue;
        if (wanted == IS_NAN || wanted == UNTOUCHED)
            snprintf(what, sizeof what, "rank %d: %s although a rank was lost", rank,
                     wanted == IS_NAN ? "not NaN" : "written");
        snprintf(why, room, "%s: %s", name, what);
        return false;
    }
    return true;
}

/* Every rank's word names a lost one, and the process's mirror is the word of one of its ranks: two
 * ranks that give up at the same time may have met different gaps. */
static bool check_culprit(const team_state *state, int process, char *why, size_t room)
{
    const team_case *about = state->team->about;
    const bool lost = state->lost_at < state->story->calls;
    const int first = state->story->mute ? about->ranks - 1 : state->story->lost * about->local;
    const int ranks = state->story->mute ? 1 : about->local;
    const arf_word mirror = *state->mirror[process];
    bool good = true, mirrored = false;
    arf_word word = 0;
    for (int local = 0; local < about->local && good; local++) {
        word = ((const arf_control *)state->segment[process * about->local + local])->culprit;
        good = lost ? word != 0 && ARF_CULPRIT_RANK(word) >= first &&
                          ARF_CULPRIT_RANK(word) < first + ranks
                    : word == 0;
        mirrored = mirrored || word == mirror;
    }
    if (good && mirrored)
        return true;
    snprintf(why, room, "process %d: sticky word 0x%llx, mirror 0x%llx", process, word, mirror);
    return false;
}

/* A row of blocks of the kernels that wait inside themselves must fit, or nothing is legal. */
static void leave_room(const team_state *state)
{
    emu_chaos *chaos = emu_engine_chaos(state->engine);
    for (int p = 0; p < state->team->plans; p++)
        for (int s = 0; s < state->team->plan[p].recipe.steps; s++) {
            const arf_step *step = &state->team->plan[p].recipe.step[s];
            const unsigned row = (unsigned)(step->parts * step->local_ranks);
            if (step->resident && chaos->resident < row)
                chaos->resident = row;
        }
}

bool team_run(emu_team *team, const team_story *story, team_tally *tally, char *why, size_t room)
{
    team_state state = {.team = team,
                        .story = story,
                        .lost_at = story->lost >= 0 ? story->lost_at : INT32_MAX,
                        .engine = emu_engine_create(story->seed)};
    const int processes = team->about->ranks / team->about->local;
    state.call = calloc((size_t)story->calls, sizeof *state.call);
    if (state.call == NULL)
        abort();
    if (getenv("EMULATOR_TRACE") != NULL)
        printf("# lost: process %d, call %d, after %d kernels; resident %u, slow stream %d\n",
               story->lost, story->lost_at, story->lost_steps,
               emu_engine_chaos(state.engine)->resident,
               emu_engine_chaos(state.engine)->slow_stream);
    team_make_memory(&state);
    leave_room(&state);
    if ((story->lost >= 0 || story->mute) && team->about->weight > 1)
        /* Blocks of many warps that get hardly a turn cannot be told from lost ones. */
        emu_engine_chaos(state.engine)->slow_stream = emu_engine_chaos(state.engine)->slow_rank =
            -1;
    for (int i = 0; i < story->calls; i++) {
        invent_call(&state, &state.call[i]);
        if (getenv("EMULATOR_TRACE") != NULL) {
            char text[160];
            describe_call(&state, i, text, sizeof text);
            printf("# %s\n", text);
        }
        if (state.call[i].tokens == 0)
            continue; /* nothing is launched */
        if (story->mute && i >= story->lost_at && state.lost_at == INT32_MAX)
            state.call[i].mute = state.call[i].plan->mute_unit != NULL;
        if (state.call[i].mute)
            state.lost_at = i;
        for (int p = 0; p < processes; p++)
            if (p != story->lost || i < story->lost_at)
                team_launch_call(&state, &state.call[i], p, INT32_MAX);
            else if (i == story->lost_at)
                team_launch_call(&state, &state.call[i], p, story->lost_steps);
    }
    bool good = emu_run(state.engine);
    if (!good)
        snprintf(why, room, "%s", emu_engine_message(state.engine));
    for (int p = 0; good && p < processes; p++) {
        if (p == story->lost)
            continue;
        good = check_culprit(&state, p, why, room);
        for (int local = 0; good && local < team->about->local; local++)
            good = check_rank(&state, p * team->about->local + local, why, room);
    }
    tally->runs++;
    tally->calls += (uint64_t)story->calls;
    tally->switches += emu_engine_switches(state.engine);
    emu_engine_destroy(state.engine);
    team_free_memory(&state);
    free(state.call);
    return good;
}
