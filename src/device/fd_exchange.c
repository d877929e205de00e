/* SPDX-License-Identifier: Apache-2.0 */
#include "device/fd_exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "device/node.h"

/* How a process can be reached, and where it is: what travels through the allgather. */
typedef struct contact {
    arf_node node;
    uint64_t secret; /* a sender shows the receiver's own, so that strangers are told apart */
    uint32_t user;
    uint32_t address_bytes;
    struct sockaddr_un address;
} contact;

/* One packet carries one descriptor and says whose it is. */
typedef struct packet {
    uint64_t secret; /* the receiver's */
    int64_t rank;
} packet;

enum { PENDING = 2 * ARF_MAX_RANKS };

typedef struct exchange {
    const arf_team *team;
    const int *own;
    int *all;
    contact self, peer[ARF_MAX_RANKS];
    int listener;
    int pending[PENDING], pending_count; /* accepted, not yet closed by the sender */
    int next_peer;                       /* distance to the process that is sent to next */
    int missing;                         /* descriptors still to come */
    int refused;                         /* connections of other users */
} exchange;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void close_one(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

/* ---- who and where --------------------------------------------------------------------------- */

static const char *socket_folder(void)
{
    const char *folder = getenv("ARFUSE_SOCKET_FOLDER");
    if (folder == NULL || folder[0] == '\0')
        folder = getenv("XDG_RUNTIME_DIR");
    return folder == NULL || folder[0] == '\0' ? "/tmp" : folder;
}

static arfuse_status open_listener(exchange *x, bool in_folder, arf_error *error)
{
    contact *self = &x->self;
    if (getrandom(&self->secret, sizeof self->secret, 0) != (ssize_t)sizeof self->secret)
        return arf_fail(error, ARFUSE_FAILURE, "getrandom: %s", strerror(errno));
    x->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (x->listener < 0)
        return arf_fail(error, ARFUSE_FAILURE, "Unix socket: %s", strerror(errno));

    self->address.sun_family = AF_UNIX;
    socklen_t bytes = sizeof self->address.sun_family; /* the kernel picks an abstract name */
    if (in_folder) {
        int n = snprintf(self->address.sun_path, sizeof self->address.sun_path,
                         "%s/arfuse-%016" PRIx64 ".socket", socket_folder(), self->secret);
        if (n < 0 || (size_t)n >= sizeof self->address.sun_path) {
            self->address.sun_path[0] = '\0'; /* nothing of ours to remove */
            return arf_fail(error, ARFUSE_USAGE,
                            "socket folder \"%s\": the path is too long for a Unix socket; set "
                            "ARFUSE_SOCKET_FOLDER to a shorter one",
                            socket_folder());
        }
        bytes = sizeof self->address;
        /* The secret in the name must not tell the secret in the packets. */
        if (getrandom(&self->secret, sizeof self->secret, 0) != (ssize_t)sizeof self->secret)
            return arf_fail(error, ARFUSE_FAILURE, "getrandom: %s", strerror(errno));
    }
    if (bind(x->listener, (struct sockaddr *)&self->address, bytes) != 0) {
        int cause = errno;
        if (in_folder)
            self->address.sun_path[0] = '\0'; /* nothing of ours to remove */
        return arf_fail(error, ARFUSE_FAILURE, "binding a socket: %s", strerror(cause));
    }
    bytes = sizeof self->address;
    if (getsockname(x->listener, (struct sockaddr *)&self->address, &bytes) != 0 ||
        listen(x->listener, SOMAXCONN) != 0)
        return arf_fail(error, ARFUSE_FAILURE, "listening on a socket: %s", strerror(errno));
    self->address_bytes = bytes;
    return ARFUSE_OK;
}

/* Every process judges the same contacts and comes to the same answer: no vote is needed. */
static arfuse_status same_place(const exchange *x, bool in_folder, arf_error *error)
{
    const contact *first = &x->peer[0];
    for (int p = 1; p < x->team->bootstrap.size; p++) {
        const contact *other = &x->peer[p];
        if (!arf_node_same(&first->node, &other->node))
            return arf_fail(error, ARFUSE_HARDWARE,
                            "processes 0 and %d are on different nodes (%s, %s): file descriptors "
                            "cannot travel between nodes",
                            p, first->node.name, other->node.name);
        if (first->user != other->user)
            return arf_fail(error, ARFUSE_HARDWARE,
                            "processes 0 and %d belong to users %u and %u; run a team as one user",
                            p, (unsigned)first->user, (unsigned)other->user);
        if (!in_folder && first->node.network != other->node.network)
            return arf_fail(error, ARFUSE_NOT_SUPPORTED,
                            "processes 0 and %d are in different network namespaces", p);
    }
    return ARFUSE_OK;
}

static bool of_our_user(const exchange *x, int socket)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           peer.uid == x->self.user;
}

/* ---- sending --------------------------------------------------------------------------------- */

static bool send_one(int to, const packet *what, int descriptor)
{
    union {
        struct cmsghdr header; /* for its alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {(void *)what, sizeof *what};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *what;
}

/*
 * Sends all own descriptors to one process, which need not have accepted yet: they wait in its
 * queue. *again: the queue is full, or too many descriptors are under way (the kernel counts them
 * against RLIMIT_NOFILE); both pass when receivers catch up.
 */
static arfuse_status send_to(exchange *x, int process, bool *again, arf_error *error)
{
    const arf_team *team = x->team;
    const contact *peer = &x->peer[process];
    *again = false;
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (to < 0)
        return arf_fail(error, ARFUSE_FAILURE, "Unix socket: %s", strerror(errno));
    bool sent = connect(to, (const struct sockaddr *)&peer->address, peer->address_bytes) == 0;
    if (sent && !of_our_user(x, to)) {
        close_one(&to);
        return arf_fail(error, ARFUSE_HARDWARE,
                        "the socket of process %d belongs to another user; run a team as one user",
                        process);
    }
    /* When a later one of several fails, the receiver drops what it has already: see take(). */
    for (int i = 0; sent && i < team->local_ranks; i++) {
        packet what = {peer->secret, team->first_rank + i};
        sent = send_one(to, &what, x->own[i]);
    }
    int cause = errno;
    close_one(&to);
    if (sent)
        return ARFUSE_OK;
    if (cause == EAGAIN || cause == EINTR || cause == ETOOMANYREFS) {
        *again = true;
        return ARFUSE_OK;
    }
    return arf_fail(error, ARFUSE_FAILURE, "sending a descriptor to process %d: %s", process,
                    strerror(cause));
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* One packet of one connection. False: nothing there now; *open says whether more can come. */
static bool take(exchange *x, int from, bool *open)
{
    packet what = {0, -1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {&what, sizeof what};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t bytes = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    if (bytes <= 0) {
        *open = bytes < 0 && (errno == EAGAIN || errno == EINTR);
        return false;
    }
    *open = true;
    /* Padding leaves room for a second descriptor that a stranger might send: each is closed unless
     * it is kept. What did not fit the kernel has closed already. */
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
            bool wanted = count == 1 && bytes == (ssize_t)sizeof what &&
                          what.secret == x->self.secret && what.rank >= 0 &&
                          what.rank < x->team->tp_size && x->all[what.rank] < 0;
            /* A sender that had to start again sends some a second time: the first is kept. */
            if (wanted) {
                x->all[what.rank] = descriptor;
                x->missing--;
            } else {
                close_one(&descriptor);
            }
        }
    }
    return true;
}

/* Accepts and reads what is there. True when anything was. */
static bool receive(exchange *x)
{
    bool progress = false;
    while (x->pending_count < PENDING) {
        int from = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (from < 0)
            break;
        if (of_our_user(x, from)) {
            x->pending[x->pending_count++] = from;
        } else {
            x->refused++;
            close_one(&from);
        }
        progress = true;
    }
    for (int i = x->pending_count - 1; i >= 0; i--) {
        bool open;
        while (take(x, x->pending[i], &open))
            progress = true;
        if (!open) {
            close_one(&x->pending[i]);
            x->pending[i] = x->pending[--x->pending_count];
            progress = true;
        }
    }
    return progress;
}

static void wait_for_any(exchange *x, int milliseconds)
{
    struct pollfd set[1 + PENDING] = {{.fd = x->listener, .events = POLLIN}};
    for (int i = 0; i < x->pending_count; i++)
        set[1 + i] = (struct pollfd){.fd = x->pending[i], .events = POLLIN};
    poll(set, (nfds_t)(1 + x->pending_count), milliseconds);
}

static arfuse_status late(const exchange *x, double limit_seconds, arf_error *error)
{
    bool absent[ARF_MAX_RANKS];
    for (int rank = 0; rank < x->team->tp_size; rank++)
        absent[rank] = x->all[rank] < 0;
    char ranks[256], refused[80] = "";
    arf_rank_set_text(absent, x->team->tp_size, ranks, sizeof ranks);
    if (x->refused)
        snprintf(refused, sizeof refused, "; %d connections of other users were refused",
                 x->refused);
    if (x->missing == 0)
        return arf_fail(error, ARFUSE_TIMEOUT,
                        "a descriptor could not be sent within %g s: a peer's queue stays full",
                        limit_seconds);
    return arf_fail(error, ARFUSE_TIMEOUT, "no descriptor of rank(s) %s within %g s%s", ranks,
                    limit_seconds, refused);
}

/* Sends and receives by turns, so that no process waits with full queues before it. */
static arfuse_status transfer(exchange *x, double limit_seconds, arf_error *error)
{
    const int size = x->team->bootstrap.size, self = x->team->bootstrap.rank;
    const double deadline = now() + limit_seconds;
    for (int i = 0; i < x->team->local_ranks; i++) {
        int rank = x->team->first_rank + i;
        x->all[rank] = fcntl(x->own[i], F_DUPFD_CLOEXEC, 0);
        if (x->all[rank] < 0)
            return arf_fail(error, ARFUSE_FAILURE, "duplicating a descriptor: %s", strerror(errno));
    }
    x->missing = x->team->tp_size - x->team->local_ranks;
    x->next_peer = 1;
    while (x->next_peer < size || x->missing > 0) {
        bool again = false;
        if (x->next_peer < size) {
            ARF_TRY(send_to(x, (self + x->next_peer) % size, &again, error));
            if (!again)
                x->next_peer++;
        }
        if (receive(x) || (x->next_peer < size && !again))
            continue;
        if (now() > deadline)
            return late(x, limit_seconds, error);
        wait_for_any(x, again ? 1 : 20);
    }
    return ARFUSE_OK;
}

/* ---- one attempt ----------------------------------------------------------------------------- */

static arfuse_status attempt(const arf_team *team, bool in_folder, const int *own, int *all,
                             double limit_seconds, arf_error *error)
{
    exchange *x = calloc(1, sizeof *x);
    arfuse_status status;
    if (x == NULL) {
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for passing descriptors");
    } else {
        x->team = team, x->own = own, x->all = all, x->listener = -1;
        arf_node_here(&x->self.node);
        x->self.user = geteuid();
        status = open_listener(x, in_folder, error);
    }
    ARF_TRY_GOTO(status, arf_team_vote(team, status, error), done);
    ARF_TRY_GOTO(status, arf_team_allgather(team, &x->self, x->peer, sizeof x->self, error), done);
    ARF_TRY_GOTO(status, same_place(x, in_folder, error), done);
    status = transfer(x, limit_seconds, error);
    status = arf_team_vote(team, status, error);
done:
    if (x) {
        close_one(&x->listener);
        if (in_folder && x->self.address.sun_path[0] != '\0')
            unlink(x->self.address.sun_path);
        while (x->pending_count > 0)
            close_one(&x->pending[--x->pending_count]);
        free(x);
    }
    if (status != ARFUSE_OK)
        for (int rank = 0; rank < team->tp_size; rank++)
            close_one(&all[rank]);
    return status;
}

arfuse_status arf_fd_exchange(const arf_team *team, const int *own, int *all, double limit_seconds,
                              arf_error *error)
{
    for (int rank = 0; rank < team->tp_size; rank++)
        all[rank] = -1;
    arf_error abstract = ARF_ERROR_INIT, folder = ARF_ERROR_INIT;
    arfuse_status status = attempt(team, false, own, all, limit_seconds, &abstract);
    /* ARFUSE_HARDWARE: another kind of socket would change nothing. */
    if (status == ARFUSE_OK || status == ARFUSE_HARDWARE || team->bootstrap.size == 1)
        return status == ARFUSE_OK ? ARFUSE_OK : arf_fail(error, status, "%s", abstract.text);
    status = attempt(team, true, own, all, limit_seconds, &folder);
    if (status == ARFUSE_OK)
        return ARFUSE_OK;
    return arf_fail(error, status,
                    "passing file descriptors failed: over abstract sockets: %.450s; over sockets "
                    "in a folder: %.450s",
                    abstract.text, folder.text);
}
