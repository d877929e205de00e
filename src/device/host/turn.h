/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where other ranks may come between: before every access to memory that ranks
 * share. Nothing at all in a normal build. Built with ARF_INTERLEAVE, a test
 * (tests/interleave) decides there which rank goes on.
 */
#ifndef ARF_DEVICE_HOST_TURN_H
#define ARF_DEVICE_HOST_TURN_H

#ifdef ARF_INTERLEAVE
void arf_host_turn(int polling); /* 1: this rank saw that it has to wait */
#define ARF_HOST_TURN() arf_host_turn(0)
#define ARF_HOST_POLL_TURN() arf_host_turn(1)
#else
#define ARF_HOST_TURN() ((void)0)
#define ARF_HOST_POLL_TURN() ((void)0)
#endif

#endif
