/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcuda: the functions that set-up uses, over host memory and memfd, so that teams
 * of several processes can be set up, and made to fail, without a GPU. Kernels do nothing.
 *
 * A program opens it by its path before anything opens "libcuda.so.1": the dynamic linker then
 * hands out this one. The environment says what machine it plays, read at every cuInit:
 *
 *   FAKECUDA_DEVICES=N      GPUs of the machine (1); CUDA_VISIBLE_DEVICES=0,2 is respected
 *   FAKECUDA_FAIL=N         the N-th call fails (clean-up calls are not counted and never fail)
 *   FAKECUDA_NO_PEER=0-1,2-0 directed pairs without peer access
 *   FAKECUDA_PCIE=1         peers without native atomics
 *   FAKECUDA_NO_FLAG=1      a word that is written to a peer never arrives
 *   FAKECUDA_NO_FD=1        descriptors are refused when asked for
 *   FAKECUDA_FABRIC=1       fabric handles work; the attribute promises them in any case
 *   FAKECUDA_MPS=1          contexts are shared by MPS
 *   FAKECUDA_SMS=N          multiprocessors that this process may use (132)
 */
#ifndef TESTS_FAKECUDA_H
#define TESTS_FAKECUDA_H

/* Counts calls from here on; the n-th fails, 0: none. */
void fakecuda_arm(int n);
/* Calls counted since, and the name of the last one. */
int fakecuda_calls(const char **last);
/* Objects that exist: contexts, contexts pushed, allocations, handles, ranges, maps, modules,
 * streams, graphs. */
int fakecuda_live(void);
/* The name of the kernel launched last (0), before that (1), ...; "" before the first. */
const char *fakecuda_launched(int back);
/* arf_call.flags of the kernel launched last. */
unsigned fakecuda_flags(void);
/* The division of first-level memory that a kernel asked for last, in percent; -1: none did. */
int fakecuda_carveout(void);

/* From here on calls by a library do not come to their end. */
void fakecuda_stick(int on);

/* Of fakenccl.c, a stand-in for libnccl: what it was asked for, "send COUNT PEER; ...". */
const char *fakenccl_log(void);
void fakenccl_forget(void);

#endif
