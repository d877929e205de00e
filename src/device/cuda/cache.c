/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"

/* What stands before the bytes of an entry. */
typedef struct entry_header {
    char magic[16];
    uint64_t key[2];
    uint64_t bytes;
    uint64_t checksum;
} entry_header;

static const char magic[16] = "arfuse-kernel 1";

static bool find_folder(char *folder, size_t size)
{
    /* The base directory specification: a relative path is to be ignored. */
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int used = -1;
    if (base != NULL && base[0] == '/')
        used = snprintf(folder, size, "%s/arfuse", base);
    else if (home != NULL && home[0] == '/')
        used = snprintf(folder, size, "%s/.cache/arfuse", home);
    return used > 0 && (size_t)used < size;
}

/* Why the folder may not be used; NULL when it is this user's alone. */
static const char *folder_trouble(const char *folder)
{
    struct stat status;
    if (lstat(folder, &status) != 0)
        return strerror(errno);
    if (!S_ISDIR(status.st_mode))
        return "it is not a folder";
    if (status.st_uid != geteuid())
        return "it belongs to another user";
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return "others may write to it";
    return NULL;
}

static const char *make_folder(const char *folder)
{
    if (mkdir(folder, 0700) != 0 && errno == ENOENT) {
        char parent[sizeof((arf_cache *)0)->folder];
        snprintf(parent, sizeof parent, "%s", folder);
        *strrchr(parent, '/') = '\0';
        arf_error error = ARF_ERROR_INIT;
        if (arf_make_folder(parent, &error) == ARFUSE_OK)
            mkdir(folder, 0700);
    }
    return folder_trouble(folder);
}

void arf_cache_open(arf_cache *cache, const arf_log *log)
{
    if (!find_folder(cache->folder, sizeof cache->folder)) {
        arf_logf(log, ARFUSE_LOG_INFO,
                 "compiled kernels are not kept: neither XDG_CACHE_HOME nor HOME is an absolute "
                 "path");
        cache->folder[0] = '\0';
        return;
    }
    const char *trouble = make_folder(cache->folder);
    if (trouble == NULL)
        return;
    arf_logf(log, ARFUSE_LOG_WARNING, "compiled kernels are not kept: %s: %s", cache->folder,
             trouble);
    cache->folder[0] = '\0';
}

static bool entry_path(const arf_cache *cache, arf_cache_key key, char *path, size_t size)
{
    int used = snprintf(path, size, "%s/%016" PRIx64 "%016" PRIx64 ".kernel", cache->folder,
                        key.digest[0], key.digest[1]);
    return cache->folder[0] != '\0' && used > 0 && (size_t)used < size;
}

static bool read_all(int descriptor, void *to, size_t bytes)
{
    char *at = to;
    while (bytes > 0) {
        ssize_t got = read(descriptor, at, bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static uint64_t checksum(const entry_header *header, const void *data)
{
    uint64_t hash = arf_hash(ARF_HASH_INIT, header->key, sizeof header->key);
    return arf_hash(hash, data, header->bytes);
}

static bool read_entry(int descriptor, arf_cache_key key, void **data, size_t *bytes)
{
    struct stat status;
    entry_header header;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
        !read_all(descriptor, &header, sizeof header) ||
        memcmp(header.magic, magic, sizeof magic) != 0 ||
        memcmp(header.key, key.digest, sizeof header.key) != 0 || header.bytes == 0 ||
        header.bytes > ARF_CACHE_MAX_BYTES ||
        (uint64_t)status.st_size != sizeof header + header.bytes)
        return false;
    /* One more byte: PTX is text, and the driver wants its end. */
    char *payload = malloc(header.bytes + 1);
    if (payload == NULL)
        return false;
    if (!read_all(descriptor, payload, header.bytes) ||
        checksum(&header, payload) != header.checksum) {
        free(payload);
        return false;
    }
    payload[header.bytes] = '\0';
    *data = payload;
    *bytes = header.bytes;
    return true;
}

bool arf_cache_read(const arf_cache *cache, arf_cache_key key, void **data, size_t *bytes)
{
    char path[sizeof cache->folder + 64];
    if (!entry_path(cache, key, path, sizeof path))
        return false;
    /* A link could point to bytes that somebody else chose; a FIFO would hang the open. */
    int descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return false;
    bool found = read_entry(descriptor, key, data, bytes);
    close(descriptor);
    return found;
}

void arf_cache_write(const arf_cache *cache, arf_cache_key key, const void *data, size_t bytes,
                     const arf_log *log)
{
    char path[sizeof cache->folder + 64];
    if (!entry_path(cache, key, path, sizeof path) || bytes == 0 || bytes > ARF_CACHE_MAX_BYTES)
        return;
    entry_header header = {.bytes = bytes};
    memcpy(header.magic, magic, sizeof magic);
    memcpy(header.key, key.digest, sizeof header.key);
    header.checksum = checksum(&header, data);
    char *entry = malloc(sizeof header + bytes);
    if (entry == NULL)
        return;
    memcpy(entry, &header, sizeof header);
    memcpy(entry + sizeof header, data, bytes);
    arf_error error = ARF_ERROR_INIT;
    /* The folder is 0700 already, so nobody sees the entry before its own mode is set. */
    if (arf_write_file(path, entry, sizeof header + bytes, &error) != ARFUSE_OK)
        arf_logf(log, ARFUSE_LOG_INFO, "a compiled kernel was not kept: %s", error.text);
    else if (chmod(path, 0600) != 0)
        arf_logf(log, ARFUSE_LOG_INFO, "%s: cannot set its mode: %s", path, strerror(errno));
    free(entry);
}
