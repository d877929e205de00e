/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to preload that makes one call fail: the n-th call of a named function that the program
 * or libarfuse itself makes, in the process of a chosen rank. Calls that the C library, cJSON's or
 * MPI's insides make are counted for nobody, so n means the same on every machine.
 *
 *   FAULT_CALL   name of the function; "short": a write that takes half and then finds no room
 *   FAULT_AT     n, from 1; 0: fail nothing, count
 *   FAULT_WITHIN 0xFROM-0xTO: only calls from this part of the program are counted
 *   FAULT_RANK   of the process, as the launcher numbers it (default 0)
 *   FAULT_LOG    file that gets a line "hit NAME N OBJECT+OFFSET" at the fault or, with FAULT_AT=0,
 *                "count NAME N" for each function at the end
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Name and the error that the fault leaves in errno (or, for MPI and pthread, returns). */
#define CALLS(X)                              \
    X(malloc, ENOMEM)                         \
    X(calloc, ENOMEM)                         \
    X(realloc, ENOMEM)                        \
    X(aligned_alloc, ENOMEM)                  \
    X(strdup, ENOMEM)                         \
    X(strndup, ENOMEM)                        \
    X(newlocale, ENOMEM)                      \
    X(open, EMFILE)                           \
    X(fopen, EMFILE)                          \
    X(read, EIO)                              \
    X(write, ENOSPC)                          \
    X(short, ENOSPC)                          \
    X(fsync, EIO)                             \
    X(fdatasync, EIO)                         \
    X(ftruncate, EIO)                         \
    X(fstat, EIO)                             \
    X(lseek, EIO)                             \
    X(rename, EACCES)                         \
    X(unlink, EACCES)                         \
    X(linkat, EACCES)                         \
    X(mkdir, EACCES)                          \
    X(chmod, EPERM)                           \
    X(flock, ENOLCK)                          \
    X(fcntl, EMFILE)                          \
    X(mmap, ENOMEM)                           \
    X(memfd_create, EMFILE)                   \
    X(posix_fallocate, ENOSPC)                \
    X(pthread_create, EAGAIN)                 \
    X(getrandom, ENOSYS)                      \
    X(socket, EMFILE)                         \
    X(bind, EADDRINUSE)                       \
    X(listen, EADDRINUSE)                     \
    X(getsockname, ENOBUFS)                   \
    X(getsockopt, ENOBUFS)                    \
    X(connect, ECONNREFUSED)                  \
    X(accept4, EMFILE)                        \
    X(sendmsg, ETOOMANYREFS)                  \
    X(recvmsg, ENOMEM)                        \
    X(poll, ENOMEM)                           \
    X(MPI_Init_thread, MPI_ERR_OTHER)         \
    X(MPI_Comm_dup, MPI_ERR_OTHER)            \
    X(MPI_Comm_split_type, MPI_ERR_OTHER)     \
    X(MPI_Win_allocate_shared, MPI_ERR_OTHER) \
    X(MPI_Win_shared_query, MPI_ERR_OTHER)    \
    X(MPI_Allgather, MPI_ERR_OTHER)           \
    X(MPI_Iallgather, MPI_ERR_OTHER)          \
    X(MPI_Ibarrier, MPI_ERR_OTHER)            \
    X(MPI_Ibcast, MPI_ERR_OTHER)              \
    X(MPI_Iallreduce, MPI_ERR_OTHER)          \
    X(MPI_Test, MPI_ERR_OTHER)

#define AS_ENUM(name, error) CALL_##name,
#define AS_NAME(name, error) #name,
#define AS_ERROR(name, error) error,
enum { CALLS(AS_ENUM) COUNT };
static const char *const call_name[] = {CALLS(AS_NAME)};
static const int call_error[] = {CALLS(AS_ERROR)};

static atomic_int calls[COUNT];
static int chosen = -1, chosen_at;
static uintptr_t within_from, within_to = UINTPTR_MAX;
static bool counting;
static char log_path[512];

/* Where the code under test lies. */
static struct {
    uintptr_t from, to, base;
    const char *name;
} object[8];
static int objects;

static int note_object(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size, (void)context;
    bool program = info->dlpi_name[0] == '\0';
    if (!program && strstr(info->dlpi_name, "libarfuse") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum && objects < 8; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0)
            continue;
        object[objects].base = info->dlpi_addr;
        object[objects].from = info->dlpi_addr + part->p_vaddr;
        object[objects].to = object[objects].from + part->p_memsz;
        object[objects++].name = program ? "program" : "libarfuse.so";
    }
    return 0;
}

static void report(const char *text, int bytes)
{
    int file = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (file < 0)
        return;
    syscall(SYS_write, file, text, (size_t)bytes);
    syscall(SYS_close, file);
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("FAULT_CALL"), *at = getenv("FAULT_AT"), *rank = getenv("FAULT_RANK");
    const char *own = getenv("OMPI_COMM_WORLD_RANK"), *path = getenv("FAULT_LOG");
    const char *within = getenv("FAULT_WITHIN");
    dl_iterate_phdr(note_object, NULL);
    if (at == NULL || path == NULL || atoi(rank ? rank : "0") != atoi(own ? own : "0"))
        return;
    snprintf(log_path, sizeof log_path, "%s", path);
    chosen_at = atoi(at);
    counting = chosen_at == 0;
    if (within != NULL)
        sscanf(within, "%" SCNxPTR "-%" SCNxPTR, &within_from, &within_to);
    for (int i = 0; i < COUNT && name != NULL; i++)
        if (strcmp(name, call_name[i]) == 0)
            chosen = i;
}

__attribute__((destructor)) static void end(void)
{
    for (int i = 0; i < COUNT && counting; i++) {
        char text[128];
        if (calls[i] > 0)
            report(text, snprintf(text, sizeof text, "count %s %d\n", call_name[i], calls[i]));
    }
}

/* True when this call is the one to fail. */
static bool strikes(int call, void *from)
{
    uintptr_t at = (uintptr_t)from;
    for (int i = 0; i < objects; i++) {
        if (at < object[i].from || at >= object[i].to)
            continue;
        if (at - object[i].base < within_from || at - object[i].base >= within_to)
            return false;
        int n = atomic_fetch_add(&calls[call], 1) + 1;
        if (call != chosen || n != chosen_at)
            return false;
        char text[160];
        report(text, snprintf(text, sizeof text, "hit %s %d %s+%#lx\n", call_name[call], n,
                              object[i].name, (unsigned long)(at - 1 - object[i].base)));
        errno = call_error[call];
        return true;
    }
    return false;
}

#define STRIKES(call) strikes(CALL_##call, __builtin_return_address(0))
#define REAL(name) ((__typeof__(&name))real(#name, &name##_real))
static void *real(const char *name, void **found)
{
    if (*found == NULL)
        *found = dlsym(RTLD_NEXT, name);
    return *found;
}

/* ---- memory: the C library's own entries, since looking one up may itself allocate ------------
 */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

EXPORT void *malloc(size_t bytes)
{
    return STRIKES(malloc) ? NULL : __libc_malloc(bytes);
}
EXPORT void *calloc(size_t count, size_t bytes)
{
    return STRIKES(calloc) ? NULL : __libc_calloc(count, bytes);
}
EXPORT void *realloc(void *memory, size_t bytes)
{
    return STRIKES(realloc) ? NULL : __libc_realloc(memory, bytes);
}
EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    return STRIKES(aligned_alloc) ? NULL : __libc_memalign(alignment, bytes);
}

/* ---- what only forwards ------------------------------------------------------------------------
 */

/* FORWARD(result of the fault, its type, name, (parameters), (arguments)) */
#define FORWARD(failed, type, name, parameters, arguments) \
    EXPORT type name parameters                            \
    {                                                      \
        static void *name##_real;                          \
        if (STRIKES(name))                                 \
            return failed;                                 \
        return REAL(name) arguments;                       \
    }
#define FAILS(name, parameters, arguments) FORWARD(-1, int, name, parameters, arguments)
#define RETURNS(name, parameters, arguments) \
    FORWARD(call_error[CALL_##name], int, name, parameters, arguments)

FORWARD(NULL, char *, strdup, (const char *text), (text))
FORWARD(NULL, char *, strndup, (const char *text, size_t bytes), (text, bytes))
FORWARD((locale_t)0, locale_t, newlocale, (int mask, const char *name, locale_t base),
        (mask, name, base))
FORWARD(NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
FORWARD(-1, ssize_t, read, (int file, void *data, size_t bytes), (file, data, bytes))
FORWARD(-1, ssize_t, getrandom, (void *data, size_t bytes, unsigned flags), (data, bytes, flags))
FORWARD(-1, ssize_t, sendmsg, (int s, const struct msghdr *m, int flags), (s, m, flags))
FORWARD(-1, ssize_t, recvmsg, (int s, struct msghdr *m, int flags), (s, m, flags))
FORWARD(-1, off_t, lseek, (int file, off_t to, int whence), (file, to, whence))
FORWARD(MAP_FAILED, void *, mmap,
        (void *at, size_t bytes, int access, int flags, int file, off_t offset),
        (at, bytes, access, flags, file, offset))
FAILS(fsync, (int file), (file))
FAILS(fdatasync, (int file), (file))
FAILS(ftruncate, (int file, off_t bytes), (file, bytes))
FAILS(fstat, (int file, struct stat *about), (file, about))
FAILS(rename, (const char *from, const char *to), (from, to))
FAILS(unlink, (const char *path), (path))
FAILS(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
FAILS(mkdir, (const char *path, mode_t mode), (path, mode))
FAILS(chmod, (const char *path, mode_t mode), (path, mode))
FAILS(flock, (int file, int how), (file, how))
FAILS(memfd_create, (const char *name, unsigned flags), (name, flags))
FAILS(socket, (int domain, int type, int protocol), (domain, type, protocol))
FAILS(bind, (int s, const struct sockaddr *to, socklen_t bytes), (s, to, bytes))
FAILS(listen, (int s, int queue), (s, queue))
FAILS(getsockname, (int s, struct sockaddr *to, socklen_t *bytes), (s, to, bytes))
FAILS(getsockopt, (int s, int level, int name, void *value, socklen_t *bytes),
      (s, level, name, value, bytes))
FAILS(connect, (int s, const struct sockaddr *to, socklen_t bytes), (s, to, bytes))
FAILS(accept4, (int s, struct sockaddr *from, socklen_t *bytes, int flags), (s, from, bytes, flags))
FAILS(poll, (struct pollfd * set, nfds_t count, int milliseconds), (set, count, milliseconds))
RETURNS(posix_fallocate, (int file, off_t from, off_t bytes), (file, from, bytes))
RETURNS(pthread_create,
        (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context),
        (thread, attributes, run, context))

/* ---- what takes a varying argument, or has two kinds of fault ----------------------------------
 */

EXPORT int open(const char *path, int flags, ...)
{
    static void *open_real;
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return STRIKES(open) ? -1 : REAL(open)(path, flags, mode);
}

EXPORT int fcntl(int file, int what, ...)
{
    static void *fcntl_real;
    va_list arguments;
    va_start(arguments, what);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return STRIKES(fcntl) ? -1 : REAL(fcntl)(file, what, argument);
}

/* Half of the bytes fit; the next write finds that nothing more does. */
EXPORT ssize_t write(int file, const void *data, size_t bytes)
{
    static void *write_real;
    static atomic_bool full;
    if (STRIKES(write))
        return -1;
    if (STRIKES(short)) {
        atomic_store(&full, true);
        return REAL(write)(file, data, bytes / 2);
    }
    if (atomic_exchange(&full, false)) {
        errno = ENOSPC;
        return -1;
    }
    return REAL(write)(file, data, bytes);
}

/* ---- MPI ---------------------------------------------------------------------------------------
 */

RETURNS(MPI_Init_thread, (int *c, char ***v, int wanted, int *got), (c, v, wanted, got))
RETURNS(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
RETURNS(MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
        (comm, type, key, info, made))
RETURNS(MPI_Win_allocate_shared,
        (MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *memory, MPI_Win *window),
        (bytes, unit, info, comm, memory, window))
RETURNS(MPI_Win_shared_query, (MPI_Win window, int rank, MPI_Aint *bytes, int *unit, void *memory),
        (window, rank, bytes, unit, memory))
RETURNS(MPI_Allgather,
        (const void *send, int count, MPI_Datatype type, void *receive, int receive_count,
         MPI_Datatype receive_type, MPI_Comm comm),
        (send, count, type, receive, receive_count, receive_type, comm))
RETURNS(MPI_Iallgather,
        (const void *send, int count, MPI_Datatype type, void *receive, int receive_count,
         MPI_Datatype receive_type, MPI_Comm comm, MPI_Request *request),
        (send, count, type, receive, receive_count, receive_type, comm, request))
RETURNS(MPI_Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
RETURNS(MPI_Ibcast,
        (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
        (data, count, type, root, comm, request))
RETURNS(MPI_Iallreduce,
        (const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         MPI_Request *request),
        (send, receive, count, type, op, comm, request))
RETURNS(MPI_Test, (MPI_Request * request, int *done, MPI_Status *status), (request, done, status))
