/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LL: every rank pushes its whole contribution into every rank's mailbox; the payload is its own
 * flag. Generations rotate with the call; whoever consumed a slot re-arms it, in the call that
 * consumed it.
 *
 * One process is one rank. Calls of one rank run one after another, since every kernel waits for the
 * grid before it; ranks run freely against each other. A call's token count is drawn anew for every
 * call (0 too) and is the same on all ranks.
 *
 * Asserted: a slot is empty when it is written (no message overwritten before it is read); a value
 * read is that of the reader's own call (no stale read, none from the future); when a rank has read
 * a call, no peer is more than one call with tokens away. No deadlock: spin looks for invalid end
 * states itself.
 *
 * Twins that must fail, to show that the model can see the faults (-DTWIN_...):
 *   NEXT    re-arm the next generation instead of the one consumed: wipes a faster peer's message
 *   COUNT   re-arm the previous generation by this call's token count: leaves rows of a longer call
 *   EARLY   publish without waiting for the grid that re-arms: two calls of a rank overlap
 *   ONE     one generation only
 *   ZERO    a call of no tokens takes a generation: it waits for nobody, so after two of them a rank
 *           comes round to a generation that a peer has not read yet. Hence the rule: a call of no
 *           tokens touches nothing, the epoch neither.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 6
#endif
#ifndef TOKENS
#define TOKENS 2
#endif
#ifdef TWIN_ONE
#define GENERATIONS 1
#else
#define GENERATIONS 3
#endif

#define SLOT(reader, writer, generation, token)                                                    \
    slot[(((reader) * RANKS + (writer)) * GENERATIONS + (generation)) * TOKENS + (token)]

byte slot[RANKS * RANKS * GENERATIONS * TOKENS]; /* 0: empty (the sentinel); else call + 1 */
byte tokens[CALLS];                              /* of each call */
byte published[RANKS];                           /* calls with tokens whose publishing has begun */
byte rearmed[RANKS];                             /* calls whose slots are empty again */
byte epoch[RANKS];                               /* in device memory: says which generation */

/* The re-arming half of a call, after the trigger: a process of its own in the EARLY twin. */
inline rearm(me, call, taken)
{
    byte rw, rt;
    for (rw : 0 .. RANKS - 1) {
#if defined(TWIN_NEXT)
        for (rt : 0 .. TOKENS - 1) {
            SLOT(me, rw, (taken + 1) % GENERATIONS, rt) = 0;
        }
#elif defined(TWIN_COUNT)
        rt = 0;
        do
        :: rt < tokens[call] -> SLOT(me, rw, (taken + GENERATIONS - 1) % GENERATIONS, rt) = 0; rt++
        :: else -> break
        od;
#else
        rt = 0;
        do
        :: rt < tokens[call] -> SLOT(me, rw, taken % GENERATIONS, rt) = 0; rt++
        :: else -> break
        od;
#endif
    }
    rearmed[me] = call + 1;
}

proctype later(byte me; byte call; byte taken)
{
    rearmed[me] == call; /* re-arming grids of one rank still run in order */
    rearm(me, call, taken);
}

proctype rank(byte me)
{
    byte call, peer, token, taken;
    for (call : 0 .. CALLS - 1) {
#ifndef TWIN_EARLY
        assert(rearmed[me] == call); /* the grid-dependency wait */
#endif
#ifndef TWIN_ZERO
        if
        :: tokens[call] == 0 -> rearmed[me] = call + 1; goto next
        :: else
        fi;
#endif
        taken = epoch[me];
        epoch[me] = (taken + 1) % GENERATIONS;
        published[me]++;
        for (peer : 0 .. RANKS - 1) {
            token = 0;
            do
            :: token < tokens[call] ->
                d_step {
                    assert(SLOT(peer, me, taken % GENERATIONS, token) == 0);
                    SLOT(peer, me, taken % GENERATIONS, token) = call + 1;
                }
                token++
            :: else -> break
            od;
        }
        for (peer : 0 .. RANKS - 1) {
            token = 0;
            do
            :: token < tokens[call] ->
                SLOT(me, peer, taken % GENERATIONS, token) != 0;
                assert(SLOT(me, peer, taken % GENERATIONS, token) == call + 1);
                token++
            :: else -> break
            od;
        }
        atomic {
            for (peer : 0 .. RANKS - 1) {
                assert(tokens[call] == 0 || published[peer] >= published[me]);
                assert(tokens[call] == 0 || published[peer] <= published[me] + 1);
            }
        }
#ifdef TWIN_EARLY
        run later(me, call, taken);
#else
        rearm(me, call, taken);
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
