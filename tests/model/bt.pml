/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BT: two hops. A contribution goes to the token's owner (token mod ranks); the owner sums, and pushes
 * the row to all; all normalise. Two mailboxes of rotating generations, one epoch for both; whoever
 * consumed a slot re-arms it.
 *
 * Same reading as ll.pml, but BLOCKS processes are one rank. One: its three kernels (publish, reduce,
 * norm) run one after another. More: one grid, whose blocks go through the three stages, each for its
 * part, without meeting; so a block normalises while others still reduce, or publish. Whether the next
 * call's grid is launched early or late, its blocks begin once all of this one have ended. The last
 * block to have read the epoch advances it, when it ends. Ranks run freely; token counts are drawn anew
 * for every call. A rank that owns no token still takes its generation of the contribution mailbox.
 *
 * Twins that must fail:
 *   OWNER   a rank that owns no token skips its reduce step, so its epoch falls behind
 *   NEXT    the reduce step re-arms the next generation
 *   ONE     one generation, and re-arming is left to the next call
 * and of several blocks:
 *   EARLY   a block begins the next call when it has ended itself, not the whole grid
 *   QUEUED  a block begins when the one before it has ended: the grid is not co-resident
 *   LAST    the first block to end advances the epoch, though others may not have read it
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef BLOCKS
#define BLOCKS 1
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
/* Block of an owner that reduces a token: not the one that publishes and normalises it. */
#define REDUCER(token) (((token) + 1) % BLOCKS)
/* [owner][writer][generation][token], and [reader][generation][token] */
#define PART(owner, writer, generation, token)                                                     \
    part[(((owner) * RANKS + (writer)) * GENERATIONS + (generation)) * TOKENS + (token)]
#define ROW(reader, generation, token)                                                             \
    row[((reader) * GENERATIONS + (generation)) * TOKENS + (token)]

byte part[RANKS * RANKS * GENERATIONS * TOKENS];
byte row[RANKS * GENERATIONS * TOKENS];
byte tokens[CALLS];
byte epoch[RANKS];
byte started[RANKS]; /* blocks of the rank's call that have read the epoch */
byte ended[RANKS];   /* blocks that have ended, of all calls with tokens */

/* One access to memory that others see is a step; what stands before it reads only what is the block's. */
inline clear_parts(which, slot)
{
    peer = 0;
    do
    :: peer < RANKS -> d_step { PART(me, peer, which, slot) = 0; peer++ }
    :: else -> break
    od
}

proctype block(byte me; byte mine)
{
    byte call, count, peer, token, generation, before; /* before: calls with tokens that have ended */
    bool owns, is_last;
    for (call : 0 .. CALLS - 1) {
        atomic {
            count = tokens[call];
            if
            :: count == 0 -> goto next /* touches nothing: see ll.pml, twin ZERO */
            :: else
            fi;
#if defined(TWIN_QUEUED)
            ended[me] >= before * BLOCKS + mine;
#elif !defined(TWIN_EARLY)
            ended[me] >= before * BLOCKS; /* the grid-dependency wait */
#endif
            before++;
            generation = epoch[me];
            started[me]++;
#ifdef TWIN_LAST
            is_last = (started[me] == 1);
#else
            is_last = (started[me] == BLOCKS);
#endif
            started[me] = started[me] % BLOCKS
        }

        /* publish */
        token = mine;
        do
        :: token < count ->
            d_step {
                assert(PART(OWNER(token), me, generation, token) == 0);
                PART(OWNER(token), me, generation, token) = call + 1;
                token = token + BLOCKS
            }
        :: else -> break
        od;

        /* reduce: only own tokens, but every rank advances the epoch */
        token = me;
        do
        :: token < count && REDUCER(token) == mine ->
            owns = true;
            peer = 0;
            do
            :: peer < RANKS ->
                d_step {
                    PART(me, peer, generation, token) != 0;
                    assert(PART(me, peer, generation, token) == call + 1);
                    peer++
                }
            :: else -> break
            od;
            peer = 0;
            do
            :: peer < RANKS ->
                d_step {
                    assert(ROW(peer, generation, token) == 0);
                    ROW(peer, generation, token) = call + 1;
                    peer++
                }
            :: else -> break
            od;
#if defined(TWIN_NEXT)
            clear_parts((generation + 1) % GENERATIONS, token);
#elif !defined(TWIN_ONE)
            clear_parts(generation, token);
#endif
            token = token + RANKS
        :: token < count && REDUCER(token) != mine -> token = token + RANKS
        :: else -> break
        od;

        /* norm */
        token = mine;
        do
        :: token < count ->
            d_step {
                ROW(me, generation, token) != 0;
                assert(ROW(me, generation, token) == call + 1);
                ROW(me, generation, token) = 0;
                token = token + BLOCKS
            }
        :: else -> break
        od;
#ifdef TWIN_ONE
        for (token : 0 .. TOKENS - 1) {
            clear_parts(0, token);
        }
#endif
        atomic {
#ifdef TWIN_OWNER
            is_last = is_last && owns;
#endif
            if
            :: is_last -> epoch[me] = (generation + 1) % GENERATIONS
            :: else
            fi;
            ended[me]++;
            token = 0; peer = 0; owns = false; is_last = false /* fewer states */
        }
    next:
        skip
    }
}

init
{
    byte i, j;
    atomic {
        for (i : 0 .. CALLS - 1) {
            if
            :: tokens[i] = 0
            :: tokens[i] = 1
            :: tokens[i] = TOKENS
            fi;
        }
        for (i : 0 .. RANKS - 1) {
            for (j : 0 .. BLOCKS - 1) {
                run block(i, j);
            }
        }
    }
}
