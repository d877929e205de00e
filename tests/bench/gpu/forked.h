/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner's processes (tune/group.h) without MPI: forked here, so that a machine with a GPU needs
 * no launcher. */
#ifndef TESTS_BENCH_GPU_FORKED_H
#define TESTS_BENCH_GPU_FORKED_H

/*
 * Runs work(context) in `count` processes (one: in this one) and returns the largest exit
 * code. A process that dies by a signal counts as a failure. When one has failed the others may
 * wait for it for ever, so they get some seconds to end by themselves; all end after `seconds`.
 */
int forked_run(int count, double seconds, int (*work)(void *), void *context);

#endif
