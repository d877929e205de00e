/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of one run, the operands of its calls, and their launching. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/team_state.h"

enum { ALIGNMENT = 256 };

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
void team_produce(const void *call, const void *team, const void *operands)
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

/* ---- memory ---------------------------------------------------------------------------------- */

struct block_of_memory {
    struct block_of_memory *next;
    char space[];
};

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

void team_make_memory(team_state *state)
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

void team_free_memory(team_state *state)
{
    for (block_of_memory *block = state->memory, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
}

/* ---- operands ------------------------------------------------------------------------------- */

void team_make_operands(team_state *state, team_call *call, int rank)
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

void team_launch_call(team_state *state, team_call *call, int process, int most)
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
