/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordering rule, watched: calls that wait for peers, of all workspaces of one
 * team on one device, run one after another, in the same order on every rank. Who
 * breaks it may deadlock, on a GPU and between ranks; here both workspaces are named.
 *
 * Every process keeps a page that its peers map: what it is busy with, and which
 * workspace each of the team's calls was of. A call is compared with what peers did
 * at the same place of the sequence. Of two ranks that differ, the later one sees it.
 *
 * What is not seen: a workspace that does not ask for it; workspaces of other teams;
 * the order between ranks of different nodes, which have no memory in common. In
 * captured graphs the order of replays counts, which no host sees: devices that have
 * graphs look there themselves.
 */
#ifndef ARF_DEVICE_ORDER_H
#define ARF_DEVICE_ORDER_H

#include "device/device.h"

#define ARF_ORDER_WORKSPACES 65535 /* that one team may make in its life */

typedef struct arf_order arf_order;

/* A space's place; zeroed: it is not watched, and every function below does nothing. */
typedef struct arf_order_seat {
    arf_order *order;
    arf_space *space;
    uint32_t number; /* of this workspace among the team's, from 1; equal on all ranks */
    void (*fail)(arf_space *space);
} arf_order_seat;

/*
 * Collective; votes. Finds the pages of this team and device, or makes them. `device` tells devices
 * of one process apart. `fail` makes every rank's waits in a space end; it is called when the rule
 * was broken, for both workspaces, perhaps while another thread is in a call of one of them.
 */
arfuse_status arf_order_join(arf_order_seat *seat, arf_space *space, uint64_t device,
                             void (*fail)(arf_space *space), arf_error *error);
/* Not collective. No call of the space may be running. */
void arf_order_leave(arf_order_seat *seat);

/* Before and after a call that waits for peers; `end` after a `begin` that gave ARFUSE_OK alone. No
 * allocation, and no lock unless the rule was broken. ARFUSE_DISAGREE, or ARFUSE_IN_USE for two
 * calls at one time, names both workspaces; both have failed on all ranks then. */
arfuse_status arf_order_begin(arf_order_seat *seat, arf_error *error);
void arf_order_end(arf_order_seat *seat);

/* What begin said, on this rank or another; ARFUSE_OK when the rule was kept so far. */
arfuse_status arf_order_state(const arf_order_seat *seat, arf_error *error);

#endif
