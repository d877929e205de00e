/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HT as src/device/host/ht.c runs it: two hops over plain memory with ready counters, pipelined by
 * units (a shard of a group of tokens), without generations. A rank publishes a unit, then reduces
 * the one before, then normalises the group before that, once its last shard is there.
 *
 * One process is one rank; ranks run freely; token counts are drawn anew for every call. A cell holds
 * the number of the call that wrote it, and every read asserts that it is the reader's own call: so a
 * cell that is overwritten before it was read, or read before it was written, is a failed assertion.
 * Counters are stored with release and read with acquire; here a step is seen by all at once, which
 * for data behind such counters is the same.
 *
 * Twins that must fail:
 *   OWNERS   contributions are announced only to the owners of the unit's tokens
 *   EARLY    an owner announces its rows before it has pushed them
 *   ZERO     counters start anew with every call
 *   OWN      a rank counts only the units in which it owns a token
 *   LATE     the last group of a call is normalised after the next call's first unit was published
 *   PUSH     an owner does not wait for the contributions of the last rank
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef TOKENS
#define TOKENS 2
#endif
#ifndef GROUP
#define GROUP 1
#endif
#ifndef SHARDS
#define SHARDS 1
#endif

#define OWNER(token) ((token) % RANKS)
#define UNITS(count) (((count) + GROUP - 1) / GROUP * SHARDS)
#define FIRST(unit) ((unit) / SHARDS * GROUP)
#define END(unit, count)                                                                           \
    (FIRST(unit) + GROUP < (count) -> FIRST(unit) + GROUP : (count))
/* [owner][source][token][shard], and [reader][token][shard] */
#define PART(owner, source, token, shard)                                                          \
    part[(((owner) * RANKS + (source)) * TOKENS + (token)) * SHARDS + (shard)]
#define ROW(reader, token, shard) row[((reader) * TOKENS + (token)) * SHARDS + (shard)]
#define READY(owner, source) ready[(owner) * RANKS + (source)]
#define ROWS(reader, owner) rows[(reader) * RANKS + (owner)]

byte part[RANKS * RANKS * TOKENS * SHARDS];
byte row[RANKS * TOKENS * SHARDS];
byte ready[RANKS * RANKS], rows[RANKS * RANKS];
byte tokens[CALLS];

/* Each call of these is one unit of one rank. `before`: units of all earlier calls. */
inline publish(unit)
{
    token = FIRST(unit);
    do
    :: token < END(unit, tokens[call]) ->
        PART(OWNER(token), me, token, (unit) % SHARDS) = call + 1;
        token++
    :: else -> break
    od;
    for (peer : 0 .. RANKS - 1) {
#ifdef TWIN_OWNERS
        if
        :: peer >= OWNER(FIRST(unit)) && peer < OWNER(FIRST(unit)) + END(unit, tokens[call]) -
               FIRST(unit) -> READY(peer, me) = before + unit + 1
        :: else
        fi
#else
        READY(peer, me) = before + unit + 1
#endif
    }
}

inline announce_rows(unit)
{
    for (peer : 0 .. RANKS - 1) {
        ROWS(peer, me) = before + unit + 1
    }
}

inline reduce(unit)
{
    for (peer : 0 .. RANKS - 1) {
#ifdef TWIN_PUSH
        peer == RANKS - 1 || READY(me, peer) >= before + unit + 1
#else
        READY(me, peer) >= before + unit + 1
#endif
    }
#ifdef TWIN_EARLY
    announce_rows(unit);
#endif
    token = FIRST(unit);
    do
    :: token < END(unit, tokens[call]) ->
        if
        :: OWNER(token) == me ->
            for (peer : 0 .. RANKS - 1) {
                assert(PART(me, peer, token, (unit) % SHARDS) == call + 1)
            }
            for (peer : 0 .. RANKS - 1) {
                ROW(peer, token, (unit) % SHARDS) = call + 1
            }
        :: else
        fi;
        token++
    :: else -> break
    od;
#ifndef TWIN_EARLY
    announce_rows(unit);
#endif
}

/* `its`: the call that the unit belongs to; `base`: the units before it. */
inline normalise(unit, its, base)
{
    for (peer : 0 .. RANKS - 1) {
        ROWS(me, peer) >= base + unit + 1
    }
    token = FIRST(unit);
    do
    :: token < END(unit, tokens[its]) ->
        for (shard : 0 .. SHARDS - 1) {
            assert(ROW(me, token, shard) == its + 1)
        }
        token++
    :: else -> break
    od
}

proctype rank(byte me)
{
    byte call, step, token, peer, shard, before, units;
#ifdef TWIN_LATE
    byte owed_call, owed_before;
    bool owed;
#endif
    for (call : 0 .. CALLS - 1) {
        units = UNITS(tokens[call]);
        step = 0;
        do
        :: units > 0 && step <= units + SHARDS ->
            if
            :: step < units -> publish(step)
            :: else
            fi;
#ifdef TWIN_LATE
            if
            :: owed ->
                normalise((UNITS(tokens[owed_call]) - 1), owed_call, owed_before);
                owed = false
            :: else
            fi;
#endif
            if
            :: step >= 1 && step - 1 < units -> reduce((step - 1))
            :: else
            fi;
            if
            :: step >= 1 + SHARDS && step - 1 - SHARDS < units &&
               (step - 1 - SHARDS) % SHARDS == SHARDS - 1 ->
#ifdef TWIN_LATE
                if
                :: step - 1 - SHARDS == units - 1 ->
                    owed = true;
                    owed_call = call;
                    owed_before = before
                :: else -> normalise((step - 1 - SHARDS), call, before)
                fi
#else
                normalise((step - 1 - SHARDS), call, before)
#endif
            :: else
            fi;
            step++
        :: else -> break
        od;
#ifdef TWIN_OWN
        if
        :: me < tokens[call] -> before = before + units
        :: else
        fi
#elif !defined(TWIN_ZERO)
        before = before + units
#endif
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
            fi
        }
        for (i : 0 .. RANKS - 1) {
            run rank(i)
        }
    }
}
