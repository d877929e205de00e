/* SPDX-License-Identifier: Apache-2.0 */
/* Teams without MPI: each process of the bootstrap is a thread here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/team.h"
#include "support/threads_bootstrap.h"

static void rank_sets_are_ranges(void **state)
{
    (void)state;
    bool member[72] = {false};
    char text[256];
    arf_rank_set_text(member, 72, text, sizeof text);
    assert_string_equal(text, "");
    member[0] = member[1] = member[2] = member[3] = member[7] = true;
    arf_rank_set_text(member, 72, text, sizeof text);
    assert_string_equal(text, "0-3,7");
    member[71] = member[70] = true;
    arf_rank_set_text(member, 72, text, sizeof text);
    assert_string_equal(text, "0-3,7,70-71");
    /* Every second rank is the longest there is. */
    for (int i = 0; i < 72; i++)
        member[i] = i % 2 == 0;
    arf_rank_set_text(member, 72, text, sizeof text);
    assert_int_equal(strlen(text), 5 * 1 + 31 * 2 + 35);
    char small[6];
    arf_rank_set_text(member, 72, small, sizeof small);
    assert_string_equal(small, "0,2,4");
}

static void one_process_needs_no_callbacks(void **state)
{
    (void)state;
    arfuse_bootstrap alone = ARFUSE_BOOTSTRAP_INIT;
    arf_team team;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_team_create(&alone, 5, &team, &error), ARFUSE_OK);
    assert_int_equal(team.tp_size, 5);
    assert_int_equal(team.first_rank, 0);
    assert_int_equal(team.local_ranks, 5);
    assert_int_equal(arf_team_barrier(&team, &error), ARFUSE_OK);
    assert_int_equal(arf_team_agree(&team, "profile", 42, &error), ARFUSE_OK);
    assert_int_equal(arf_team_vote(&team, ARFUSE_OK, &error), ARFUSE_OK);
    arf_fail(&error, ARFUSE_PROFILE, "no such file");
    assert_int_equal(arf_team_vote(&team, ARFUSE_PROFILE, &error), ARFUSE_PROFILE);
    assert_string_equal(error.text, "no such file");
}

static void bad_bootstraps_are_refused(void **state)
{
    (void)state;
    arf_team team;
    arfuse_bootstrap b = ARFUSE_BOOTSTRAP_INIT;
    b.size = 2;
    arf_error error = ARF_ERROR_INIT;
    assert_int_equal(arf_team_create(&b, 1, &team, &error), ARFUSE_USAGE);
    assert_non_null(strstr(error.text, "callbacks"));
    b.size = 73;
    assert_int_equal(arf_team_create(&b, 1, &team, NULL), ARFUSE_USAGE);
    b.size = 1, b.rank = 1;
    assert_int_equal(arf_team_create(&b, 1, &team, NULL), ARFUSE_USAGE);
    b.rank = 0;
    assert_int_equal(arf_team_create(&b, 0, &team, NULL), ARFUSE_USAGE);
    assert_int_equal(arf_team_create(&b, 73, &team, NULL), ARFUSE_USAGE);
    assert_int_equal(arf_team_create(&b, 72, &team, NULL), ARFUSE_OK);
}

/* What one process of three did; its own assertions would end the wrong thread. */
typedef struct outcome {
    arf_team team;
    arfuse_status created, vote, agree, agree_fails, all_fail;
    arf_error vote_error, agree_error, all_error;
} outcome;

static void run_process(const arfuse_bootstrap *bootstrap, void *context)
{
    outcome *o = (outcome *)context + bootstrap->rank;
    const int hosted[3] = {1, 3, 2};
    int rank = bootstrap->rank;
    o->created = arf_team_create(bootstrap, hosted[rank], &o->team, NULL);
    if (rank == 1)
        arf_fail(&o->vote_error, ARFUSE_HARDWARE, "no memory left");
    o->vote = arf_team_vote(&o->team, o->vote_error.status, &o->vote_error);
    o->agree = arf_team_agree(&o->team, "shape", 7, NULL);
    o->agree_fails =
        arf_team_agree(&o->team, "profile", rank == 2 ? 0xabc : 0xdef, &o->agree_error);
    arf_fail(&o->all_error, ARFUSE_USAGE, "hidden_size 7");
    o->all_fail = arf_team_vote(&o->team, ARFUSE_USAGE, &o->all_error);
}

static void three_processes_take_the_same_turn(void **state)
{
    (void)state;
    outcome seen[3];
    memset(seen, 0, sizeof seen);
    threads_bootstrap_run(3, run_process, seen);
    for (int p = 0; p < 3; p++) {
        outcome *o = &seen[p];
        assert_int_equal(o->created, ARFUSE_OK);
        assert_int_equal(o->team.tp_size, 6);
        assert_int_equal(o->team.first_rank, p == 0 ? 0 : p == 1 ? 1 : 4);
        assert_int_equal(o->team.process_of[3], 1);
        assert_int_equal(o->team.process_of[4], 2);
        assert_int_equal(o->vote, ARFUSE_HARDWARE);
        assert_string_equal(o->vote_error.text, "ranks 1-3: no memory left");
        assert_int_equal(o->agree, ARFUSE_OK);
        assert_int_equal(o->agree_fails, ARFUSE_DISAGREE);
        assert_string_equal(o->agree_error.text,
                            "profile: the ranks disagree: digest 0000000000000def on ranks 0-3, "
                            "0000000000000abc on ranks 4-5; start every rank with the same");
        assert_int_equal(o->all_fail, ARFUSE_USAGE);
        assert_string_equal(o->all_error.text, "hidden_size 7");
    }
}

static void fail_differently(const arfuse_bootstrap *bootstrap, void *context)
{
    outcome *o = (outcome *)context + bootstrap->rank;
    o->created = arf_team_create(bootstrap, 1, &o->team, NULL);
    if (bootstrap->rank == 0 || bootstrap->rank == 2)
        arf_fail(&o->vote_error, ARFUSE_FAILURE, "disk full");
    if (bootstrap->rank == 3) /* no words of its own */
        o->vote_error.status = ARFUSE_TIMEOUT;
    o->vote = arf_team_vote(&o->team, o->vote_error.status, &o->vote_error);
}

static void each_cause_is_named_once(void **state)
{
    (void)state;
    outcome seen[4];
    memset(seen, 0, sizeof seen);
    threads_bootstrap_run(4, fail_differently, seen);
    for (int p = 0; p < 4; p++) {
        assert_int_equal(seen[p].vote, ARFUSE_FAILURE);
        assert_string_equal(seen[p].vote_error.text,
                            "ranks 0,2: disk full; rank 3: a wait on a peer expired");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_sets_are_ranges),
        cmocka_unit_test(one_process_needs_no_callbacks),
        cmocka_unit_test(bad_bootstraps_are_refused),
        cmocka_unit_test(three_processes_take_the_same_turn),
        cmocka_unit_test(each_cause_is_named_once),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
