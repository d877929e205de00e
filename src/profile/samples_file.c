/* SPDX-License-Identifier: Apache-2.0 */
/* The samples file while a tuner writes it: locked, every line on disk before the next. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "profile/lookup.h"
#include "profile/samples.h"

struct arf_samples_writer {
    int file;
    size_t bytes;
    char *path;
    arf_samples_header header;
};

void arf_samples_close(arf_samples_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->file >= 0)
        close(writer->file); /* lets the lock go */
    free(writer->path);
    free(writer);
}

static arfuse_status fail_errno(arf_error *error, const char *path, const char *what)
{
    return arf_fail(error, ARFUSE_FAILURE, "%s: cannot %s: %s", path, what, strerror(errno));
}

static arfuse_status append(arf_samples_writer *writer, const char *line, arf_error *error)
{
    size_t bytes = strlen(line) + 1;
    if (writer->bytes + bytes > ARF_SAMPLES_MAX_BYTES)
        return arf_fail(error, ARFUSE_FAILURE,
                        "%s: full: another line would pass the limit of %zu bytes", writer->path,
                        ARF_SAMPLES_MAX_BYTES);
    ARF_TRY(arf_append_line(writer->file, writer->path, line, error));
    writer->bytes += bytes;
    return ARFUSE_OK;
}

/* What was measured under other conditions must not be mixed with what is measured now. */
static arfuse_status check_same(const char *path, const arf_samples_header *old,
                                const arf_samples_header *header, arf_error *error)
{
    arf_profile_key key = {header->set, header->shape, header->device};
    arf_profile_key old_key = {old->set, old->shape, old->device};
    const char *what = NULL;
    if (!arf_profile_key_equal(&key, &old_key))
        what = "shape or device";
    else if (memcmp(old->version, header->version, sizeof old->version) != 0)
        what = "tuning versions";
    else if (old->policy != header->policy)
        what = "policy";
    if (what == NULL)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_PROFILE,
                    "%s: holds samples of another %s, so they cannot be resumed; run without "
                    "--resume, or with another --output",
                    path, what);
}

/* Keeps the whole lines of what is there: *bytes is where the next one goes, 0 without a header. */
static arfuse_status keep_lines(const char *path, const arf_samples_header *header, size_t *bytes,
                                arf_error *error)
{
    char *text = NULL;
    arf_samples *samples = NULL;
    bool truncated;
    arfuse_status status = ARFUSE_OK;
    *bytes = 0;
    ARF_TRY(arf_read_file(path, ARF_SAMPLES_MAX_BYTES, &text, bytes, error));
    while (*bytes > 0 && text[*bytes - 1] != '\n')
        (*bytes)--;
    if (*bytes > 0) {
        status = arf_samples_parse(path, text, *bytes, &samples, &truncated, error);
        if (status == ARFUSE_OK)
            status = check_same(path, &samples->header, header, error);
    }
    arf_samples_free(samples);
    free(text);
    return status;
}

static arfuse_status begin(arf_samples_writer *writer, bool resume, arf_error *error)
{
    char *line = NULL;
    struct stat about;
    if (fstat(writer->file, &about) != 0)
        return fail_errno(error, writer->path, "stat");
    if (!S_ISREG(about.st_mode))
        return arf_fail(error, ARFUSE_FAILURE, "%s: is not a regular file; remove it",
                        writer->path);
    /* A lock of the file itself goes when its holder goes, however that ends. */
    if (flock(writer->file, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? arf_fail(error, ARFUSE_FAILURE,
                              "%s: another tuner is writing it; wait, or use another --output",
                              writer->path)
                   : fail_errno(error, writer->path, "lock");
    if (resume)
        ARF_TRY(keep_lines(writer->path, &writer->header, &writer->bytes, error));
    if (ftruncate(writer->file, (off_t)writer->bytes) != 0)
        return fail_errno(error, writer->path, "truncate");
    if (writer->bytes > 0)
        return ARFUSE_OK;
    ARF_TRY(arf_samples_header_line(&writer->header, &line, error));
    arfuse_status status = append(writer, line, error);
    free(line);
    return status;
}

arfuse_status arf_samples_open(const char *path, const arf_samples_header *header, bool resume,
                               arf_samples_writer **writer, arf_error *error)
{
    arf_samples_writer *made = calloc(1, sizeof *made);
    if (made == NULL || (made->path = strdup(path)) == NULL) {
        free(made);
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", path);
    }
    made->header = *header;
    /* The file is emptied: through a link that would be somebody's file elsewhere. O_NONBLOCK: a
     * pipe or a device must not hang the open. */
    made->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    arfuse_status status;
    if (made->file < 0 && errno == ELOOP)
        status = arf_fail(error, ARFUSE_FAILURE,
                          "%s: is a link, expected a file of its own; remove the link", path);
    else
        status = made->file < 0 ? fail_errno(error, path, "open") : begin(made, resume, error);
    if (status != ARFUSE_OK) {
        arf_samples_close(made);
        return status;
    }
    *writer = made;
    return ARFUSE_OK;
}

arfuse_status arf_samples_append(arf_samples_writer *writer, const arf_sample *sample,
                                 arf_error *error)
{
    char *line = NULL;
    ARF_TRY(arf_sample_line(&writer->header, sample, &line, error));
    arfuse_status status = append(writer, line, error);
    free(line);
    return status;
}
