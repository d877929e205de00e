/* SPDX-License-Identifier: Apache-2.0 */
/* Which process takes which GPU, as a pure function of what all of them see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef ARF_CUDA

#include <string.h>

#include "device/cuda/seat.h"

enum { MOST = 8 };

typedef struct scene {
    arf_team team;
    arf_seat_claim claim[MOST];
    arf_seat seat[MOST];
} scene;

/* Processes as words: "0:ab" is on node 0 and sees GPUs a and b in this order; behind that "=1"
 * must have its GPU 1, and "*3" hosts three ranks. */
static void sit(scene *s, const char *words)
{
    memset(s, 0, sizeof *s);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        const int p = s->team.bootstrap.size++;
        arf_seat_claim *claim = &s->claim[p];
        int ranks = 1;
        claim->node.name[0] = at[0];
        claim->fixed = -1;
        for (at += 2; *at >= 'a' && *at <= 'z'; at++) {
            claim->gpu[claim->gpus].bytes[0] = *at;
            claim->gpu[claim->gpus++].bytes[1] = claim->node.name[0];
        }
        for (; *at == '=' || *at == '*'; at += 2)
            *(*at == '=' ? &claim->fixed : &ranks) = at[1] - '0';
        while (ranks-- > 0)
            s->team.process_of[s->team.tp_size++] = p;
    }
    arf_seats(&s->team, s->claim, s->seat);
}

/* The letters of the GPUs taken, by process. */
static const char *taken(const scene *s)
{
    static char letters[MOST + 1];
    int p = 0;
    for (; p < s->team.bootstrap.size; p++)
        letters[p] = s->seat[p].ordinal < 0 ? '-' : s->claim[p].gpu[s->seat[p].ordinal].bytes[0];
    letters[p] = '\0';
    return letters;
}

static void each_takes_its_own_by_its_place_on_the_node(void **state)
{
    (void)state;
    static const struct {
        const char *what, *processes, *taken;
    } cases[] = {
        {"all see all", "0:abcd 0:abcd 0:abcd 0:abcd", "abcd"},
        {"one each", "0:a 0:b 0:c 0:d", "abcd"},
        {"one each, shuffled", "0:c 0:a 0:d 0:b", "cadb"},
        {"one list, shuffled", "0:dbca 0:dbca 0:dbca 0:dbca", "dbca"},
        {"round-robin over two nodes", "0:ab 1:ab 0:ab 1:ab", "aabb"},
        {"one node, then the other", "0:ab 0:ab 1:ab 1:ab", "abab"},
        {"lists in opposite orders", "0:ab 0:ba", "ab"},
        {"one that has no choice", "0:ab 0:a", "ba"},
        {"a chain of such", "0:abc 0:ab 0:a", "cba"},
        {"an engine's current device", "0:ab=1 0:ab", "ba"},
        {"more than there are", "0:ab 0:ab 0:ab", "aba"},
        {"one sees none", "0:ab 0:", "a-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s;
        sit(&s, cases[i].processes);
        if (strcmp(taken(&s), cases[i].taken) != 0)
            fail_msg("%s: %s, expected %s", cases[i].what, taken(&s), cases[i].taken);
    }
}

static void who_shares_is_counted(void **state)
{
    (void)state;
    scene s;
    sit(&s, "0:ab*3 0:ab 0:ab");
    /* Who is left over joins the GPU with fewer ranks. */
    assert_string_equal(taken(&s), "abb");
    assert_int_equal(s.seat[0].processes, 1);
    assert_int_equal(s.seat[0].ranks, 3);
    assert_int_equal(s.seat[2].processes, 2);
    assert_int_equal(s.seat[2].ranks, 2);
    assert_true(arf_seats_shared(s.claim, s.seat, 1, 2));
    assert_false(arf_seats_shared(s.claim, s.seat, 0, 2));
    /* GPUs of two nodes are never one. */
    sit(&s, "0:a 1:a");
    assert_false(arf_seats_shared(s.claim, s.seat, 0, 1));
    assert_int_equal(arf_seat_nodes(s.claim, 2), 2);
}

static void the_map_and_the_refusal_name_ranks_and_gpus(void **state)
{
    (void)state;
    scene s;
    char text[400], cut[40];
    arf_error error = ARF_ERROR_INIT;
    sit(&s, "0:ab 0:ab 0:ab");
    assert_int_equal(arf_seats_text(&s.team, s.claim, s.seat, text, sizeof text), 2);
    assert_string_equal(text, "ranks 0,2 on GPU-61300000-0000-0000-0000-000000000000, "
                              "rank 1 on GPU-62300000-0000-0000-0000-000000000000");
    arf_seats_text(&s.team, s.claim, s.seat, cut, sizeof cut);
    assert_string_equal(cut, "ranks 0,2 on GPU-61300000-0000-0000-...");
    assert_int_equal(arf_seats_judge(&s.team, s.claim, s.seat, true, NULL, &error), ARFUSE_OK);
    assert_int_equal(arf_seats_judge(&s.team, s.claim, s.seat, false, "arfuse-tune", &error),
                     ARFUSE_HARDWARE);
    assert_non_null(strstr(error.text, "3 ranks on 2 GPUs: ranks 0,2 on GPU-61300000-"));
    assert_non_null(strstr(error.text, "mpirun -n 1 arfuse-tune --tp 3 --gpu-sharing"));
    arf_error_clear(&error);
    sit(&s, "0:ab 0:");
    assert_int_equal(arf_seats_judge(&s.team, s.claim, s.seat, true, NULL, &error),
                     ARFUSE_HARDWARE);
    assert_non_null(strstr(error.text, "process 1 of 2 sees no GPU"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_takes_its_own_by_its_place_on_the_node),
        cmocka_unit_test(who_shares_is_counted),
        cmocka_unit_test(the_map_and_the_refusal_name_ranks_and_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/no_cuda.h"
#endif
