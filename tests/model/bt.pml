/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BT: two hops. A contribution goes to the token's owner (token mod ranks); the owner sums, and pushes
 * the row to all; all normalise. Two mailboxes, each with its own epoch, each rotating generations;
 * whoever consumed a slot re-arms it.
 *
 * Same reading as ll.pml: one process is one rank, its three kernels (publish, reduce, norm) run one
 * after another, ranks run freely; token counts are drawn anew for every call. A rank that owns no
 * token still takes its generation of the contribution mailbox.
 *
 * Twins that must fail:
 *   OWNER   a rank that owns no token skips its reduce step, so its epoch falls behind
 *   NEXT    the reduce step re-arms the next generation
 *   ONE     one generation, and re-arming is left to the next call
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 5
#endif
#ifndef TOKENS
#define TOKENS 2
#endif
#ifdef TWIN_ONE
#define GENERATIONS 1
#else
#define GENERATIONS 3
#endif

#define OWNER(token) ((token) % RANKS)
/* [owner][writer][generation][token], and [reader][generation][token] */
#define PART(owner, writer, generation, token)                                                     \
    part[(((owner) * RANKS + (writer)) * GENERATIONS + (generation)) * TOKENS + (token)]
#define ROW(reader, generation, token)                                                             \
    row[((reader) * GENERATIONS + (generation)) * TOKENS + (token)]

byte part[RANKS * RANKS * GENERATIONS * TOKENS];
byte row[RANKS * GENERATIONS * TOKENS];
byte tokens[CALLS];
/* Each kernel reads the epoch of the mailbox it works on; the last reader of a call advances it. */
byte part_epoch[RANKS], row_epoch[RANKS];

inline clear_parts(me, generation, token)
{
    byte cw;
    for (cw : 0 .. RANKS - 1) {
        PART(me, cw, generation, token) = 0;
    }
}

proctype rank(byte me)
{
    byte call, peer, token, generation;
    bool owns;
    for (call : 0 .. CALLS - 1) {
        if
        :: tokens[call] == 0 -> goto next /* touches nothing: see ll.pml, twin ZERO */
        :: else
        fi;

        /* publish */
        generation = part_epoch[me] % GENERATIONS;
        token = 0;
        do
        :: token < tokens[call] ->
            d_step {
                assert(PART(OWNER(token), me, generation, token) == 0);
                PART(OWNER(token), me, generation, token) = call + 1;
            }
            token++
        :: else -> break
        od;

        /* reduce: only own tokens, but every rank advances the epoch */
        owns = false;
        token = me;
        do
        :: token < tokens[call] ->
            owns = true;
            for (peer : 0 .. RANKS - 1) {
                PART(me, peer, generation, token) != 0;
                assert(PART(me, peer, generation, token) == call + 1);
            }
            for (peer : 0 .. RANKS - 1) {
                d_step {
                    assert(ROW(peer, row_epoch[me] % GENERATIONS, token) == 0);
                    ROW(peer, row_epoch[me] % GENERATIONS, token) = call + 1;
                }
            }
#if defined(TWIN_NEXT)
            clear_parts(me, (generation + 1) % GENERATIONS, token);
#elif !defined(TWIN_ONE)
            clear_parts(me, generation, token);
#endif
            token = token + RANKS
        :: else -> break
        od;
#ifdef TWIN_OWNER
        if
        :: owns -> part_epoch[me]++
        :: else
        fi;
#else
        part_epoch[me] = (part_epoch[me] + 1) % GENERATIONS;
#endif

        /* norm */
        generation = row_epoch[me] % GENERATIONS;
        token = 0;
        do
        :: token < tokens[call] ->
            ROW(me, generation, token) != 0;
            assert(ROW(me, generation, token) == call + 1);
            ROW(me, generation, token) = 0;
            token++
        :: else -> break
        od;
        row_epoch[me] = (row_epoch[me] + 1) % GENERATIONS;
#ifdef TWIN_ONE
        for (token : 0 .. TOKENS - 1) {
            clear_parts(me, 0, token);
        }
#endif
    next:
        skip
    }
}

init
{
    byte i;
    atomic {
        for (i : 0 .. CALLS - 1) {
            if
            :: tokens[i] = 0
            :: tokens[i] = 1
            :: tokens[i] = TOKENS
            fi;
        }
        for (i : 0 .. RANKS - 1) {
            run rank(i);
        }
    }
}
