/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node a process is on. Not the host name: two containers may share one, and one node may
 * have several. The boot id is the kernel's own; the network namespace tells how far abstract
 * sockets reach.
 */
#ifndef ARF_DEVICE_NODE_H
#define ARF_DEVICE_NODE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct arf_node {
    char name[80];    /* boot id; without /proc, the host name */
    uint64_t network; /* inode of the network namespace; 0: unknown */
} arf_node;

/* Of this thread. ARFUSE_TEST_NODE=TEXT (tests only) puts "/TEXT" behind the name, so that
 * processes of one machine behave as on several nodes. */
void arf_node_here(arf_node *node);

/* One machine; its processes may still be in several network namespaces. */
bool arf_node_same(const arf_node *a, const arf_node *b);

#endif
