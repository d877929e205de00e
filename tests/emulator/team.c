/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and the units that they need; opening and closing. */
#include "emulator/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "emulator/team_state.h"

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
    team->producer = emu_unit_native(team_produce, "producer");
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
