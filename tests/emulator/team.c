/* SPDX-License-Identifier: Apache-2.0 */
#include "emulator/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/cuda/layout.h"
#include "device/cuda/recipe.h"
#include "device/reference.h"
#include "emulator/machine.h"

enum { MOST_UNITS = 96, MOST_RANKS = 16, ALIGNMENT = 256 };
#define POISON ((arf_bf16)0x7fa5) /* a NaN that nobody writes */

typedef struct team_plan {
    arf_pattern pattern;
    arf_plan plan;
    arf_recipe recipe;
    emu_unit *unit[ARF_MAX_STEPS];
    /* The first kernel for one local rank fewer, where it publishes; its unit NULL where not. */
    arf_step mute_step;
    emu_unit *mute_unit;
} team_plan;

struct emu_team {
    const team_case *about;
    arf_shape shape;
    arf_layout layout;
    arf_space_spec spec;
    int plans, units;
    team_plan plan[TEAM_PLANS];
    emu_unit *unit[MOST_UNITS], *producer;
};

/* ---- plans ---------------------------------------------------------------------------------- */

static arf_shape shape_of(const team_case *about)
{
    return (arf_shape){.tp_size = about->ranks,
                       .hidden_size = about->hidden,
                       .top_k = about->top_k,
                       .rms_norm = about->norm ? ARF_ON : ARF_OFF,
                       .residual = about->residual ? ARF_ON : ARF_OFF,
                       .shared_expert = about->shared ? ARF_ON : ARF_OFF};
}

static bool parse_plan(const char *words, const arf_shape *shape, int local, team_plan *plan,
                       char *why, size_t room)
{
    char protocol[32], pattern[32], knob[64];
    int used = 0, value;
    arf_error error = ARF_ERROR_INIT;
    *plan = (team_plan){0};
    if (sscanf(words, "%31[a-z].%31[a-z]%n", protocol, pattern, &used) != 2 ||
        !arf_protocol_parse(protocol, &plan->plan.protocol) ||
        !arf_pattern_parse(pattern, &plan->pattern)) {
        snprintf(why, room, "plan \"%s\"", words);
        return false;
    }
    const arf_knob_table *table = arf_knobs(ARF_SET_ARFUSE, plan->plan.protocol, plan->pattern);
    plan->plan.tuning = arf_tuning_fallback(table);
    for (const char *at = words + used; sscanf(at, " %63[a-z_]=%d%n", knob, &value, &used) == 2;
         at += used) {
        const int index = arf_knob_index(table, knob);
        if (index < 0) {
            snprintf(why, room, "plan \"%s\": no knob %s", words, knob);
            return false;
        }
        plan->plan.tuning.value[index] = value;
    }
    if (arf_recipe_make(shape, local, plan->pattern, &plan->plan, &plan->recipe, &error) ==
        ARFUSE_OK)
        return true;
    snprintf(why, room, "plan \"%s\": %s", words, error.text);
    return false;
}

/* The first kernel of a call without the last local rank. False: it is not the one that publishes,
 * or the case has no use for it. */
static bool make_mute(const team_case *about, const arf_shape *shape, team_plan *plan)
{
    arf_recipe fewer;
    if (!about->mute || strcmp(plan->recipe.step[0].kernel, "finalize") == 0 ||
        arf_recipe_make(shape, about->local - 1, plan->pattern, &plan->plan, &fewer, NULL) !=
            ARFUSE_OK)
        return false;
    plan->mute_step = fewer.step[0];
    return true;
}

static uint64_t digest_of(const arf_step *step)
{
    uint64_t hash = arf_hash_text(ARF_HASH_INIT, step->kernel);
    for (int i = 0; i < step->defines; i++)
        hash = arf_hash_text(hash, step->define[i]);
    return hash;
}

static void list_unit(const arf_step *step)
{
    printf("%016llx %s", (unsigned long long)digest_of(step), step->kernel);
    for (int i = 0; i < step->defines; i++)
        printf(" %s", step->define[i]);
    printf("\n");
}

bool team_list_units(const team_case *about)
{
    const arf_shape shape = shape_of(about);
    for (int p = 0; p < TEAM_PLANS && about->plan[p] != NULL; p++) {
        team_plan plan;
        char why[512];
        if (!parse_plan(about->plan[p], &shape, about->local, &plan, why, sizeof why)) {
            fprintf(stderr, "%s: %s\n", about->name, why);
            return false;
        }
        for (int s = 0; s < plan.recipe.steps; s++)
            list_unit(&plan.recipe.step[s]);
        if (make_mute(about, &shape, &plan))
            list_unit(&plan.mute_step);
    }
    return true;
}

static emu_unit *unit_of(emu_team *team, const arf_step *step, const char *folder, char *why,
                         size_t room)
{
    char path[512], name[128];
    snprintf(name, sizeof name, "%s-%016llx", step->kernel, (unsigned long long)digest_of(step));
    for (int i = 0; i < team->units; i++)
        if (strcmp(team->unit[i]->name, name) == 0)
            return team->unit[i];
    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    if (team->units == MOST_UNITS) {
        snprintf(why, room, "more than %d units", MOST_UNITS);
        return NULL;
    }
    emu_unit *unit = emu_unit_open(path, name, why, room);
    if (unit != NULL)
        team->unit[team->units++] = unit;
    return unit;
}

/* ---- what writes the operands on the stream before a call -------------------------------------
 */

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;
typedef struct producing {
    copy copies[6 * MOST_RANKS];
    int count;
    bool trigger_early, wait_first;
} producing;

/* Triggers before it stores, as a kernel may that knows nothing of arfuse: only who waits for its
 * grid sees all it wrote. */
static void produce(const void *call, const void *team, const void *operands)
{
    const producing *work = call;
    (void)team, (void)operands;
    if (work->wait_first)
        emu_grid_wait();
    if (work->trigger_early)
        emu_grid_trigger();
    const size_t first = emu_here->block.x * emu_here->block_dim.x + emu_here->thread.x;
    const size_t step = emu_here->grid_dim.x * emu_here->block_dim.x;
    for (int i = 0; i < work->count; i++)
        for (size_t at = first * 2; at < work->copies[i].bytes; at += step * 2)
            emu_store((char *)work->copies[i].to + at, (const char *)work->copies[i].from + at, 2);
    emu_grid_wait();
}

/* ---- opening -------------------------------------------------------------------------------- */

emu_team *team_open(const team_case *about, const char *folder, char *why, size_t room)
{
    arf_error error = ARF_ERROR_INIT;
    emu_team *team = calloc(1, sizeof *team);
    if (team == NULL)
        abort();
    team->about = about;
    team->shape = shape_of(about);
    team->spec.shape = team->shape;
    team->producer = emu_unit_native(produce, "producer");
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        team->spec.capacity[p] = about->capacity;
    if (arf_layout_make(&team->spec, &team->layout, &error) != ARFUSE_OK) {
        snprintf(why, room, "%s", error.text);
        team_close(team);
        return NULL;
    }
    for (int p = 0; p < TEAM_PLANS && about->plan[p] != NULL; p++) {
        team_plan *plan = &team->plan[team->plans++];
        bool good = parse_plan(about->plan[p], &team->shape, about->local, plan, why, room);
        for (int s = 0; good && s < plan->recipe.steps; s++) {
            plan->unit[s] = unit_of(team, &plan->recipe.step[s], folder, why, room);
            good = plan->unit[s] != NULL;
        }
        if (good && make_mute(about, &team->shape, plan)) {
            plan->mute_unit = unit_of(team, &plan->mute_step, folder, why, room);
            good = plan->mute_unit != NULL;
        }
        if (!good) {
            team_close(team);
            return NULL;
        }
    }
    return team;
}

void team_close(emu_team *team)
{
    for (int i = 0; i < team->units; i++)
        emu_unit_close(team->unit[i]);
    emu_unit_close(team->producer);
    free(team);
}

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct block_of_memory {
    struct block_of_memory *next;
    char space[];
} block_of_memory;

/* A call of one run, on all ranks. */
typedef struct team_call {
    const team_plan *plan, *then;
    int64_t tokens;
    arf_trial_data data;
    arfuse_operands given[MOST_RANKS]; /* as the reference sees them */
    arfuse_operands seen[MOST_RANKS];  /* as the kernels do */
    float *inverse[MOST_RANKS];
    bool residual_in_place, input_in_place;
    bool mute; /* the last rank has no part in the first kernel */
} team_call;

typedef struct team_state {
    emu_team *team;
    const team_story *story;
    int lost_at; /* the call in which a rank is lost; INT32_MAX: none is */
    emu_engine *engine;
    block_of_memory *memory;
    char *segment[MOST_RANKS], *scratch[MOST_RANKS];
    arf_word *mirror[MOST_RANKS]; /* of each process */
    arf_team_view *view[MOST_RANKS];
    team_call *call;
} team_state;

static void *take(team_state *state, size_t bytes, int fill)
{
    block_of_memory *block = malloc(sizeof *block + bytes + 2 * ALIGNMENT);
    if (block == NULL)
        abort();
    block->next = state->memory;
    state->memory = block;
    char *at = block->space + ALIGNMENT - (uintptr_t)block->space % ALIGNMENT;
    memset(at, fill, bytes);
    return at;
}

static arf_bf16 *poisoned(team_state *state, size_t values)
{
    arf_bf16 *at = take(state, values * sizeof *at, 0);
    for (size_t i = 0; i < values; i++)
        at[i] = POISON;
    return at;
}

static void fill_range(char *segment, arf_range range)
{
    for (uint64_t i = 0; i < range.bytes; i += 2)
        memcpy(segment + range.offset + i, &(arf_bf16){ARF_SENTINEL}, 2);
}

static void make_team(team_state *state)
{
    const emu_team *team = state->team;
    const team_case *about = team->about;
    for (int r = 0; r < about->ranks; r++) {
        state->segment[r] = take(state, team->layout.segment_bytes, 0);
        fill_range(state->segment[r], team->layout.ll);
        fill_range(state->segment[r], team->layout.bt_contribution);
        fill_range(state->segment[r], team->layout.bt_row);
        state->scratch[r] = take(state, team->layout.scratch_bytes + 16, 0xff);
    }
    for (int p = 0; p < about->ranks / about->local; p++) {
        state->mirror[p] = take(state, sizeof(arf_word), 0);
        state->view[p] = take(state, sizeof(arf_team_view), 0);
        arf_layout_view(&team->layout, &team->spec, state->view[p]);
        state->view[p]->first_rank = p * about->local;
        state->view[p]->wait_limit_ns = state->story->wait_limit_ns;
        state->view[p]->mirror = state->mirror[p];
        for (int r = 0; r < about->ranks; r++)
            state->view[p]->peer[r] = state->segment[r];
    }
}

/* ---- operands ------------------------------------------------------------------------------- */

static void make_operands(team_state *state, team_call *call, int rank)
{
    const arf_shape *shape = &state->team->shape;
    const size_t hidden = (size_t)shape->hidden_size, tokens = (size_t)call->tokens;
    const size_t values = tokens * hidden, slots = tokens * (size_t)shape->top_k;
    const bool finalize = call->plan->pattern == ARF_FINALIZE;
    arfuse_operands *given = &call->given[rank];
    *given = (arfuse_operands)ARFUSE_OPERANDS_INIT;
    given->weights_type = call->data.weights_type;
    if (finalize) {
        const size_t rows = (size_t)call->data.routed_rows;
        arf_bf16 *routed = poisoned(state, (rows + 1) * hidden) + hidden; /* -1 reads NaN */
        for (size_t i = 0; i < rows; i++)
            arf_trial_routed(&call->data, rank, (int64_t)i, routed + i * hidden);
        given->routed = routed;
        given->routed_rows = (int64_t)rows;
        const size_t width = given->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2;
        char *weights = take(state, slots * width, 0);
        int32_t *indices = take(state, slots * sizeof *indices, 0);
        for (size_t m = 0; m < tokens; m++)
            arf_trial_slots(&call->data, rank, (int64_t)m, indices + m * (size_t)shape->top_k,
                            weights + m * (size_t)shape->top_k * width);
        given->weights = weights;
        given->indices = indices;
        if (shape->shared_expert == ARF_ON) {
            arf_bf16 *shared = poisoned(state, values);
            for (size_t m = 0; m < tokens; m++)
                arf_trial_shared(&call->data, rank, (int64_t)m, shared + m * hidden);
            given->shared = shared;
        }
    } else {
        arf_bf16 *input = poisoned(state, values);
        for (size_t m = 0; m < tokens; m++)
            arf_trial_input(&call->data, rank, (int64_t)m, input + m * hidden);
        given->input = input;
    }
    if (shape->residual == ARF_ON) {
        arf_bf16 *residual = poisoned(state, values);
        for (size_t m = 0; m < tokens; m++)
            arf_trial_residual(&call->data, (int64_t)m, residual + m * hidden);
        given->residual = residual;
    }
    if (shape->rms_norm == ARF_ON) {
        arf_bf16 *gamma = poisoned(state, hidden);
        arf_trial_gamma(&call->data, gamma);
        given->gamma = gamma;
    }
}

/* A place of its own for a tensor that the producer writes; else the given one. */
static const void *arrange(team_state *state, producing *work, const void *given, size_t bytes)
{
    if (given == NULL || work == NULL)
        return given;
    char *to = take(state, bytes, 0xff);
    work->copies[work->count++] = (copy){to, given, bytes};
    return to;
}

static producing *arrange_operands(team_state *state, team_call *call, int first, bool produced)
{
    const emu_team *team = state->team;
    const size_t bytes = (size_t)call->tokens * (size_t)team->shape.hidden_size * 2;
    producing *work = produced ? take(state, sizeof *work, 0) : NULL;
    for (int rank = first; rank < first + team->about->local; rank++) {
        const arfuse_operands *given = &call->given[rank];
        arfuse_operands *seen = &call->seen[rank];
        *seen = *given;
        seen->input = arrange(state, work, given->input, bytes);
        seen->routed = arrange(state, work, given->routed,
                               (size_t)given->routed_rows * (size_t)team->shape.hidden_size * 2);
        const size_t slots = (size_t)call->tokens * (size_t)team->shape.top_k;
        seen->weights = arrange(state, work, given->weights,
                                slots * (given->weights_type == ARFUSE_WEIGHTS_FP32 ? 4 : 2));
        seen->indices = arrange(state, work, given->indices, slots * sizeof(int32_t));
        if (!(call->plan->recipe.step[0].flags & ARF_SHARED_EARLY)) /* else it must be there */
            seen->shared = arrange(state, work, given->shared, bytes);
        seen->residual = arrange(state, work, given->residual, bytes);
        /* In place only on a copy: the reference reads the given one afterwards. */
        if (call->residual_in_place && seen->residual != NULL && produced)
            seen->residual_out = (void *)(uintptr_t)seen->residual;
        else if (team->shape.rms_norm != ARF_ON || emu_random(state->engine, 4) != 0)
            seen->residual_out = poisoned(state, bytes / 2);
        if (team->shape.rms_norm == ARF_ON && call->input_in_place && seen->input && produced)
            seen->norm_out = (void *)(uintptr_t)seen->input;
        else if (team->shape.rms_norm == ARF_ON)
            seen->norm_out = poisoned(state, bytes / 2);
        call->inverse[rank] = take(state, (size_t)call->tokens * sizeof(float), 0xff);
    }
    return work;
}

/* ---- launching, as src/device/cuda/launch.c does ----------------------------------------------
 */

static void launch_producer(team_state *state, int process, const producing *work, bool dependent)
{
    const emu_launch launch = {.unit = state->team->producer,
                               .grid_x = 1 + (unsigned)emu_random(state->engine, 3),
                               .grid_y = 1,
                               .threads = 32,
                               .cluster = 1,
                               .dependent = dependent,
                               .ranks = 1,
                               .call = work};
    emu_enqueue(state->engine, process, &launch);
}

static void launch_step(team_state *state, const team_call *call, const team_plan *plan, int index,
                        int process, bool plain, bool from_scratch)
{
    const emu_team *team = state->team;
    const bool mute = call->mute && index == 0;
    const arf_step *step = mute ? &plan->mute_step : &plan->recipe.step[index];
    const emu_chaos *chaos = emu_engine_chaos(state->engine);
    arf_call *parameters = take(state, sizeof *parameters, 0);
    *parameters = (arf_call){.tokens = call->tokens,
                             .epsilon = call->data.epsilon,
                             .weight_bias = call->data.weight_bias,
                             .routed_scale = call->data.routed_scale,
                             .flags = step->flags,
                             .shards = step->shards,
                             .reducers = step->reducers};
    if (call->data.weights_type == ARFUSE_WEIGHTS_FP32)
        parameters->flags |= ARF_WEIGHTS_ARE_FP32;
    if (step->resident && emu_random(state->engine, 4) == 0)
        parameters->flags |= ARF_TRIGGER_NEVER;
    arf_operand_table *table = take(state, sizeof *table, 0);
    for (int local = 0; local < step->local_ranks; local++) {
        const int rank = process * step->local_ranks + local;
        const arfuse_operands *seen = &call->seen[rank];
        table->of[local] = (arf_operand_view){
            .input = from_scratch || step->from_scratch ? state->scratch[rank] : seen->input,
            .routed = seen->routed,
            .weights = seen->weights,
            .indices = seen->indices,
            .shared = seen->shared,
            .residual = seen->residual,
            .gamma = seen->gamma,
            .residual_out = seen->residual_out,
            .norm_out = seen->norm_out,
            .contribution = state->scratch[rank],
            .inverse_rms = call->inverse[rank]};
    }
    int64_t rows = arf_step_rows(step, &team->shape, call->tokens);
    /* A grid whose blocks wait for each other is resident as a whole. */
    const int64_t most = (int64_t)chaos->resident / (step->parts * step->local_ranks);
    if (step->resident && rows > most)
        rows = most;
    else if (!step->resident && rows > 1 && emu_random(state->engine, 2) == 0)
        rows = 1 + (int64_t)emu_random(state->engine, (uint64_t)rows); /* rows loop: always legal */
    const emu_launch launch = {.unit = mute ? plan->mute_unit : plan->unit[index],
                               .grid_x = (unsigned)(rows * step->local_ranks),
                               .grid_y = (unsigned)step->parts,
                               .threads = (unsigned)step->threads,
                               .cluster = (unsigned)step->cluster,
                               .dynamic_bytes = step->shared_bytes,
                               .dependent = step->dependent && !plain,
                               .ranks = (unsigned)step->local_ranks,
                               .call = parameters,
                               .team = state->view[process],
                               .operands = table};
    emu_enqueue(state->engine, process, &launch);
}

/* The first `most` kernels of the call on one process's stream. */
static void launch_call(team_state *state, team_call *call, int process, int most)
{
    const bool plain = emu_random(state->engine, 4) == 0;
    const bool produced = emu_random(state->engine, 2) == 0;
    const int first = process * state->team->about->local;
    producing *work = arrange_operands(state, call, first, produced);
    if (work != NULL) {
        const bool dependent = emu_random(state->engine, 2) == 0;
        work->trigger_early = emu_random(state->engine, 2) == 0;
        work->wait_first = dependent;
        launch_producer(state, process, work, dependent);
    }
    for (int i = 0; i < call->plan->recipe.steps && i < most; i++)
        launch_step(state, call, call->plan, i, process, plain && i == 0, false);
    most -= call->plan->recipe.steps;
    for (int i = 0; call->then != NULL && i < call->then->recipe.steps && i < most; i++)
        launch_step(state, call, call->then, i, process, false, true);
}

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
        make_operands(state, call, rank);
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
    make_team(&state);
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
                launch_call(&state, &state.call[i], p, INT32_MAX);
            else if (i == story->lost_at)
                launch_call(&state, &state.call[i], p, story->lost_steps);
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
    for (block_of_memory *block = state.memory, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(state.call);
    return good;
}
