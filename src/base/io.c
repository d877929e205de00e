/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux's PATH_MAX; a longer path cannot be opened anyway. */
#define PATH_BYTES 4096
/* Names tried for a temporary before giving up; each is taken only by a live or killed writer. */
#define TEMPORARY_TRIES 100

static arfuse_status fail_errno(arf_error *error, const char *path, const char *what)
{
    return arf_fail(error, ARFUSE_FAILURE, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* ---- descriptors ------------------------------------------------------------------------- */

arfuse_status arf_hold_standard(arf_error *error)
{
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; standard++) {
        if (fcntl(standard, F_GETFD) != -1 || errno != EBADF)
            continue;
        /* The lowest closed number is the one that open gives. */
        if (open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return fail_errno(error, "/dev/null", "open in place of a closed standard stream");
    }
    return ARFUSE_OK;
}

/* In a process that has closed its stderr, a file would get that number, and whatever the process
 * prints there. Takes the descriptor; -1 as open gives it. */
static int above_standard(int file)
{
    if (file < 0 || file > STDERR_FILENO)
        return file;
    int moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int cause = errno;
    close(file);
    errno = cause;
    return moved;
}

/* ---- reading ----------------------------------------------------------------------------- */

arfuse_status arf_read_file(const char *path, size_t limit, char **text, size_t *bytes,
                            arf_error *error)
{
    /* O_NONBLOCK: opening a pipe that nobody writes must not hang; it is refused below. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return arf_fail(error, ARFUSE_PROFILE, "%s: cannot open: %s", path, strerror(errno));
    arfuse_status status = ARFUSE_OK;
    char *buffer = NULL;
    size_t used = 0;
    struct stat about;
    if (fstat(file, &about) != 0) {
        status = fail_errno(error, path, "stat");
        goto done;
    }
    if (!S_ISREG(about.st_mode)) {
        status = arf_fail(error, ARFUSE_PROFILE, "%s: %s, expected a regular file", path,
                          S_ISDIR(about.st_mode) ? "is a folder" : "is not a regular file");
        goto done;
    }
    if ((unsigned long long)about.st_size > limit) {
        status = arf_fail(error, ARFUSE_PROFILE, "%s: %lld bytes, expected at most %zu", path,
                          (long long)about.st_size, limit);
        goto done;
    }
    /* The size may change while we read: room for one byte more shows a file that grew. */
    size_t room = (size_t)about.st_size + 1;
    buffer = malloc(room + 1);
    if (buffer == NULL) {
        status = arf_fail(error, ARFUSE_FAILURE, "%s: out of memory for %zu bytes", path, room);
        goto done;
    }
    while (used < room) {
        ssize_t got = read(file, buffer + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = fail_errno(error, path, "read");
            goto done;
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    if (used == room)
        status = arf_fail(error, ARFUSE_PROFILE, "%s: grew while it was read; try again", path);
done:
    close(file);
    if (status != ARFUSE_OK) {
        free(buffer);
        return status;
    }
    buffer[used] = '\0';
    *text = buffer;
    *bytes = used;
    return ARFUSE_OK;
}

/* ---- writing ----------------------------------------------------------------------------- */

static bool write_all(int file, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t put = write(file, data, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        data += put;
        bytes -= (size_t)put;
    }
    return true;
}

static void folder_of(const char *path, char folder[PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    if (slash == NULL)
        strcpy(folder, ".");
    else if (length == 0)
        strcpy(folder, "/");
    else {
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
}

static bool temporary_name(const char *path, int attempt, char name[PATH_BYTES])
{
    int used = snprintf(name, PATH_BYTES, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
    return used > 0 && used < PATH_BYTES;
}

/* A file of its own name beside `path`; mode 0666, from which the kernel takes the umask. */
static int create_named(const char *path, char name[PATH_BYTES])
{
    for (int attempt = 0; attempt < TEMPORARY_TRIES; attempt++) {
        if (!temporary_name(path, attempt, name)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno == EEXIST)
            continue;
        int moved = above_standard(file);
        if (file >= 0 && moved < 0)
            unlink(name);
        return moved;
    }
    return -1;
}

/* Gives a file without a name (O_TMPFILE) a temporary one. */
static bool link_named(int file, const char *path, char name[PATH_BYTES])
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file);
    for (int attempt = 0; attempt < TEMPORARY_TRIES; attempt++) {
        if (!temporary_name(path, attempt, name)) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/*
 * Leaves the bytes, synced, under the temporary `name`. A file without a name comes first: a writer
 * that is killed while it writes and syncs then leaves nothing behind. Not every file system has
 * that, nor every container /proc, so the named way stands behind it.
 */
static arfuse_status write_temporary(const char *path, const char *folder, const void *data,
                                     size_t bytes, char name[PATH_BYTES], arf_error *error)
{
    name[0] = '\0';
    for (int named = 0; named < 2; named++) {
        int file = named ? create_named(path, name)
                         : above_standard(open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
        if (file < 0 && !named)
            continue;
        if (file < 0)
            return fail_errno(error, path, "create a file beside it");
        if (!write_all(file, data, bytes) || fsync(file) != 0) {
            arfuse_status status = fail_errno(error, path, "write");
            close(file);
            if (named)
                unlink(name);
            return status;
        }
        bool linked = named || link_named(file, path, name);
        if (close(file) != 0 && linked) {
            arfuse_status status = fail_errno(error, path, "write");
            unlink(name);
            return status;
        }
        if (linked)
            return ARFUSE_OK;
    }
    return fail_errno(error, path, "create a file beside it");
}

static arfuse_status refuse_kind(const char *path, mode_t mode, arfuse_status status,
                                 arf_error *error)
{
    return arf_fail(error, status, "%s: %s, expected the name of a file to write", path,
                    S_ISDIR(mode)   ? "is a folder"
                    : S_ISLNK(mode) ? "is a link"
                                    : "is not a regular file");
}

arfuse_status arf_may_replace(const char *path, bool *there, arf_error *error)
{
    struct stat about;
    *there = stat(path, &about) == 0;
    if (!*there || S_ISREG(about.st_mode))
        return ARFUSE_OK;
    return refuse_kind(path, about.st_mode, ARFUSE_PROFILE, error);
}

arfuse_status arf_plain_or_absent(const char *path, arf_error *error)
{
    struct stat about;
    if (lstat(path, &about) != 0 || S_ISREG(about.st_mode))
        return ARFUSE_OK;
    return refuse_kind(path, about.st_mode, ARFUSE_FAILURE, error);
}

arfuse_status arf_write_file(const char *path, const void *data, size_t bytes, arf_error *error)
{
    char folder[PATH_BYTES], name[PATH_BYTES];
    if (strlen(path) >= PATH_BYTES)
        return arf_fail(error, ARFUSE_FAILURE, "%.80s...: the path is too long", path);
    folder_of(path, folder);
    ARF_TRY(write_temporary(path, folder, data, bytes, name, error));
    if (rename(name, path) != 0) {
        arfuse_status status = fail_errno(error, path, "replace");
        unlink(name);
        return status;
    }
    /* The new name itself must survive a crash. Some file systems refuse to sync a folder; the data
     * are safe by then, so that is no failure. */
    int parent = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent >= 0) {
        fsync(parent);
        close(parent);
    }
    return ARFUSE_OK;
}

arfuse_status arf_append_line(int descriptor, const char *path, const char *line, arf_error *error)
{
    off_t before = lseek(descriptor, 0, SEEK_END);
    if (before < 0)
        return fail_errno(error, path, "seek");
    size_t bytes = strlen(line) + 1;
    char *whole = malloc(bytes);
    if (whole == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory for a line", path);
    memcpy(whole, line, bytes - 1);
    whole[bytes - 1] = '\n';
    bool written = write_all(descriptor, whole, bytes) && fdatasync(descriptor) == 0;
    free(whole);
    if (written)
        return ARFUSE_OK;
    arfuse_status status = fail_errno(error, path, "append");
    int undone = ftruncate(descriptor, before);
    (void)undone; /* if not, half a line stays at the end, which readers drop */
    return status;
}

/* ---- folders ----------------------------------------------------------------------------- */

static arfuse_status make_one(const char *folder, arf_error *error)
{
    struct stat about;
    if (mkdir(folder, 0777) == 0)
        return ARFUSE_OK;
    int cause = errno;
    if (stat(folder, &about) == 0) {
        if (S_ISDIR(about.st_mode))
            return ARFUSE_OK;
        return arf_fail(error, ARFUSE_FAILURE, "%s: is a file, expected a folder", folder);
    }
    errno = cause;
    return fail_errno(error, folder, "make the folder");
}

arfuse_status arf_make_folder(const char *path, arf_error *error)
{
    char part[PATH_BYTES];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return arf_fail(error, ARFUSE_FAILURE, "'%.80s': not a usable folder name", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        ARF_TRY(make_one(part, error));
    }
    return ARFUSE_OK;
}

arfuse_status arf_join_path(char *path, size_t size, const char *folder, const char *name,
                            arf_error *error)
{
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] != '/' ? "/" : "";
    int used = snprintf(path, size, "%s%s%s", folder, slash, name);
    if (used < 0 || (size_t)used >= size)
        return arf_fail(error, ARFUSE_FAILURE, "%.80s/%.80s: the path is too long", folder, name);
    return ARFUSE_OK;
}
