/* SPDX-License-Identifier: Apache-2.0 */
#include "device/order.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "device/fd_exchange.h"
#include "device/node.h"

/* A rank is ahead of a peer by the calls that do not wait for it, a few at most. */
enum { ENTRIES = 64, NAMES = 64, NUMBER_BITS = 16 };
#define NUMBER_MASK ((UINT64_C(1) << NUMBER_BITS) - 1)
static_assert(ARF_ORDER_WORKSPACES <= (1 << NUMBER_BITS) - 1, "a number fits");

typedef _Atomic uint64_t shared_word;

/* What a process tells its peers. All zero at first. */
typedef struct page {
    shared_word busy;          /* the workspace that is in a call; 0: none */
    shared_word broken;        /* 0, or the first break of the rule; written by any process */
    shared_word call[ENTRIES]; /* of the team, from 1: its place << NUMBER_BITS | workspace */
} page;

struct arf_order {
    arf_order *next; /* of the list; unlisted ones serve those who have them */
    uint64_t key;    /* of processes and device */
    int process, processes;
    int first_rank[ARF_MAX_RANKS]; /* by process */
    page *page[ARF_MAX_RANKS];     /* by process; NULL: of another node */
    shared_word calls;             /* of this process so far */
    uint32_t numbers;              /* given so far */
    char name[NAMES][ARF_LABEL_TEXT];
    arf_order_seat **seat;
    int seats, users;
};

/*
 * The one list of this process: workspaces are made in different corners of an engine, and must
 * find each other without being handed around. Touched at creation and destruction alone, and when
 * the rule was broken.
 */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static arf_order *list;

/* ---- pages ----------------------------------------------------------------------------------- */

static arfuse_status make_page(int *descriptor, arf_error *error)
{
    *descriptor = memfd_create("arfuse-order", MFD_CLOEXEC);
    if (*descriptor < 0)
        return arf_fail(error, ARFUSE_FAILURE, "memfd_create: %s", strerror(errno));
    if (ftruncate(*descriptor, sizeof(page)) != 0) {
        const int code = errno;
        close(*descriptor);
        return arf_fail(error, ARFUSE_FAILURE, "memory for the order of calls: %s", strerror(code));
    }
    return ARFUSE_OK;
}

static arfuse_status map_page(int descriptor, page **mapped, arf_error *error)
{
    void *at = mmap(NULL, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED)
        return arf_fail(error, ARFUSE_FAILURE, "mapping the order of calls: %s", strerror(errno));
    *mapped = at;
    return ARFUSE_OK;
}

/* The pages of all processes, of the own one alone where they have no memory in common. */
static arfuse_status map_pages(arf_order *order, const arf_team *team, bool one_node,
                               arf_error *error)
{
    int own = -1, given[ARF_MAX_RANKS], all[ARF_MAX_RANKS];
    ARF_TRY(arf_team_vote(team, make_page(&own, error), error));
    arfuse_status status = ARFUSE_OK;
    if (one_node) {
        for (int i = 0; i < team->local_ranks; i++)
            given[i] = own; /* a descriptor a rank is what travels */
        status = arf_fd_exchange(team, given, all, ARF_EXCHANGE_SECONDS, error);
        if (status == ARFUSE_OK)
            for (int rank = 0; rank < team->tp_size; rank++) {
                const int process = team->process_of[rank];
                if (status == ARFUSE_OK && order->first_rank[process] == rank)
                    status = map_page(all[rank], &order->page[process], error);
                close(all[rank]);
            }
    } else {
        status = map_page(own, &order->page[order->process], error);
    }
    close(own);
    return arf_team_vote(team, status, error);
}

static void drop(arf_order *order)
{
    for (int p = 0; p < order->processes; p++)
        if (order->page[p] != NULL)
            munmap(order->page[p], sizeof(page));
    free(order->seat);
    free(order);
}

/* ---- the list -------------------------------------------------------------------------------- */

static arf_order **find(uint64_t key, int process)
{
    arf_order **at = &list;
    while (*at != NULL && ((*at)->key != key || (*at)->process != process))
        at = &(*at)->next;
    return at;
}

static arf_order *take(uint64_t key, int process)
{
    pthread_mutex_lock(&list_lock);
    arf_order *order = *find(key, process);
    if (order != NULL)
        order->users++;
    pthread_mutex_unlock(&list_lock);
    return order;
}

static void unlist(arf_order *order)
{
    arf_order **at = find(order->key, order->process);
    if (*at == order)
        *at = order->next;
}

static void let_go(arf_order *order, bool obsolete)
{
    pthread_mutex_lock(&list_lock);
    const bool last = --order->users == 0;
    if (last || obsolete)
        unlist(order);
    pthread_mutex_unlock(&list_lock);
    if (last)
        drop(order);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* What tells a team of processes apart from any other, and whether they share memory. */
static arfuse_status team_key(const arf_team *team, uint64_t device, uint64_t *key, bool *one_node,
                              arf_error *error)
{
    uint64_t own[3], all[ARF_MAX_RANKS][3];
    arf_node node;
    arf_node_here(&node);
    own[0] = arf_hash_text(ARF_HASH_INIT, node.name);
    own[1] = (uint64_t)getpid();
    own[2] = device;
    ARF_TRY(arf_team_allgather(team, own, all, sizeof own, error));
    *key = ARF_HASH_INIT;
    *one_node = true;
    for (int p = 0; p < team->bootstrap.size; p++) {
        for (int i = 0; i < 3; i++)
            *key = arf_hash_number(*key, (int64_t)all[p][i]);
        *one_node = *one_node && all[p][0] == all[0][0];
    }
    return ARFUSE_OK;
}

static arfuse_status make(const arf_team *team, uint64_t key, bool one_node, arf_order **made,
                          arf_error *error)
{
    arf_order *order = calloc(1, sizeof *order);
    arfuse_status status = ARFUSE_OK;
    if (order == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the order of calls");
    status = arf_team_vote(team, status, error);
    if (status != ARFUSE_OK) {
        free(order);
        return status;
    }
    order->key = key;
    order->users = 1;
    order->process = team->bootstrap.rank;
    order->processes = team->bootstrap.size;
    for (int rank = team->tp_size - 1; rank >= 0; rank--)
        order->first_rank[team->process_of[rank]] = rank;
    status = map_pages(order, team, one_node, error);
    if (status != ARFUSE_OK) {
        drop(order);
        return status;
    }
    pthread_mutex_lock(&list_lock);
    order->next = list;
    list = order;
    pthread_mutex_unlock(&list_lock);
    *made = order;
    return ARFUSE_OK;
}

/* Destroying is not collective, so that some processes may have let go what others still have. */
static arfuse_status find_or_make(const arf_team *team, uint64_t device, arf_order **order,
                                  arf_error *error)
{
    uint64_t key;
    bool one_node;
    int all[ARF_MAX_RANKS];
    ARF_TRY(team_key(team, device, &key, &one_node, error));
    *order = take(key, team->bootstrap.rank);
    const int own = *order != NULL;
    arfuse_status status = arf_team_allgather(team, &own, all, sizeof own, error);
    bool everywhere = status == ARFUSE_OK;
    for (int p = 0; everywhere && p < team->bootstrap.size; p++)
        everywhere = all[p] != 0;
    if (everywhere)
        return ARFUSE_OK;
    if (*order != NULL)
        let_go(*order, status == ARFUSE_OK);
    *order = NULL;
    return status == ARFUSE_OK ? make(team, key, one_node, order, error) : status;
}

/* The next number that is free on every process, so that it means the same on all. */
static arfuse_status next_number(arf_order *order, const arf_team *team, uint32_t *number,
                                 arf_error *error)
{
    uint32_t all[ARF_MAX_RANKS];
    ARF_TRY(arf_team_allgather(team, &order->numbers, all, sizeof order->numbers, error));
    for (int p = 0; p < order->processes; p++)
        if (all[p] > order->numbers)
            order->numbers = all[p];
    *number = ++order->numbers;
    if (*number <= ARF_ORDER_WORKSPACES)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                    "the order of calls is watched for %d workspaces of a team at most",
                    ARF_ORDER_WORKSPACES);
}

static arfuse_status sit(arf_order *order, arf_order_seat *seat, arf_error *error)
{
    arfuse_status status = ARFUSE_OK;
    pthread_mutex_lock(&list_lock);
    arf_order_seat **grown = realloc(order->seat, ((size_t)order->seats + 1) * sizeof *order->seat);
    if (grown == NULL) {
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for the order of calls");
    } else {
        order->seat = grown;
        order->seat[order->seats++] = seat;
    }
    pthread_mutex_unlock(&list_lock);
    return status;
}

arfuse_status arf_order_join(arf_order_seat *seat, arf_space *space, uint64_t device,
                             void (*fail)(arf_space *space), arf_error *error)
{
    const arf_team *team = space->device->team;
    arf_order *order;
    *seat = (arf_order_seat){.space = space, .fail = fail};
    ARF_TRY(find_or_make(team, device, &order, error));
    arfuse_status status = next_number(order, team, &seat->number, error);
    if (status == ARFUSE_OK) {
        snprintf(order->name[seat->number % NAMES], ARF_LABEL_TEXT, "%s", space->spec.label);
        status = sit(order, seat, error);
    }
    status = arf_team_vote(team, status, error);
    seat->order = order;
    if (status != ARFUSE_OK)
        arf_order_leave(seat);
    return status;
}

void arf_order_leave(arf_order_seat *seat)
{
    arf_order *order = seat->order;
    if (order == NULL)
        return;
    pthread_mutex_lock(&list_lock);
    for (int i = 0; i < order->seats; i++)
        if (order->seat[i] == seat)
            order->seat[i--] = order->seat[--order->seats];
    pthread_mutex_unlock(&list_lock);
    *seat = (arf_order_seat){0};
    let_go(order, false);
}

/* ---- breaking the rule ----------------------------------------------------------------------- */

/* From the top: 1 bit "broken", 1 "at one time on one rank", 2 x (7 process, 16 workspace). */
typedef struct breach {
    bool overlap;
    int process[2];
    uint32_t number[2];
} breach;
enum { SIDE_BITS = 7 + NUMBER_BITS };

static uint64_t pack(const breach *b)
{
    uint64_t word = UINT64_C(1) << 63 | (uint64_t)b->overlap << 62;
    for (int side = 0; side < 2; side++)
        word |= ((uint64_t)b->process[side] << NUMBER_BITS | b->number[side]) << side * SIDE_BITS;
    return word;
}

static breach unpack(uint64_t word)
{
    breach b = {.overlap = word >> 62 & 1};
    for (int side = 0; side < 2; side++) {
        b.number[side] = (uint32_t)(word >> side * SIDE_BITS & NUMBER_MASK);
        b.process[side] = (int)(word >> (side * SIDE_BITS + NUMBER_BITS) & 0x7f);
    }
    return b;
}

arfuse_status arf_order_state(const arf_order_seat *seat, arf_error *error)
{
    const arf_order *order = seat->order;
    const uint64_t word = order == NULL ? 0
                                        : atomic_load_explicit(&order->page[order->process]->broken,
                                                               memory_order_relaxed);
    if (word == 0)
        return ARFUSE_OK;
    const breach b = unpack(word);
    /* An innocent third one goes on; its own waits tell when peers stand still. */
    if (seat->number != b.number[0] && seat->number != b.number[1])
        return ARFUSE_OK;
    const char *name[] = {order->name[b.number[0] % NAMES], order->name[b.number[1] % NAMES]};
    const int rank[] = {order->first_rank[b.process[0]], order->first_rank[b.process[1]]};
    if (b.overlap)
        return arf_fail(error, ARFUSE_IN_USE,
                        "ordering rule: on rank %d a call of workspace %u (%s) began while one of "
                        "workspace %u (%s) was running; calls of all workspaces that share a GPU "
                        "run one after another; both have failed",
                        rank[1], b.number[1], name[1], b.number[0], name[0]);
    return arf_fail(error, ARFUSE_DISAGREE,
                    "ordering rule: at one place in the order of calls rank %d calls workspace %u "
                    "(%s) and rank %d workspace %u (%s); calls of all workspaces that share a GPU "
                    "run in the same order on every rank; both have failed",
                    rank[0], b.number[0], name[0], rank[1], b.number[1], name[1]);
}

/* The first breach is everyone's: the first page decides which one that is. */
static arfuse_status tell(arf_order_seat *seat, const breach *b, arf_error *error)
{
    arf_order *order = seat->order;
    uint64_t first = pack(b);
    for (int p = 0; p < order->processes; p++) {
        uint64_t found = 0;
        if (order->page[p] != NULL &&
            !atomic_compare_exchange_strong(&order->page[p]->broken, &found, first))
            first = found;
    }
    const breach known = unpack(first);
    pthread_mutex_lock(&list_lock);
    for (int i = 0; i < order->seats; i++) {
        arf_order_seat *at = order->seat[i];
        if (at == seat || at->number == known.number[0] || at->number == known.number[1])
            at->fail(at->space);
    }
    pthread_mutex_unlock(&list_lock);
    arfuse_status status = arf_order_state(seat, error);
    if (status != ARFUSE_OK)
        return status;
    return arf_fail(error, ARFUSE_FAILED, "the ordering rule was broken before, elsewhere");
}

/* ---- calls ----------------------------------------------------------------------------------- */

arfuse_status arf_order_begin(arf_order_seat *seat, arf_error *error)
{
    arf_order *order = seat->order;
    if (order == NULL)
        return ARFUSE_OK;
    ARF_TRY(arf_order_state(seat, error));
    page *own = order->page[order->process];
    breach b = {.process = {order->process, order->process}, .number = {0, seat->number}};
    uint64_t busy = 0;
    if (!atomic_compare_exchange_strong(&own->busy, &busy, seat->number)) {
        b.overlap = true;
        b.number[0] = (uint32_t)busy;
        return tell(seat, &b, error);
    }
    /* Sequentially consistent, the store before the loads: of two who differ, at least one sees the
     * other. */
    const uint64_t place = atomic_fetch_add(&order->calls, 1) + 1;
    atomic_store(&own->call[place % ENTRIES], place << NUMBER_BITS | seat->number);
    for (int p = 0; p < order->processes; p++) {
        const uint64_t peer =
            order->page[p] == NULL ? 0 : atomic_load(&order->page[p]->call[place % ENTRIES]);
        if (peer >> NUMBER_BITS != place || (peer & NUMBER_MASK) == seat->number)
            continue;
        b.process[0] = p;
        b.number[0] = (uint32_t)(peer & NUMBER_MASK);
        atomic_store(&own->busy, 0);
        return tell(seat, &b, error);
    }
    return ARFUSE_OK;
}

void arf_order_end(arf_order_seat *seat)
{
    if (seat->order != NULL)
        atomic_store(&seat->order->page[seat->order->process]->busy, 0);
}
