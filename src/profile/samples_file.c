/* SPDX-License-Identifier: Apache-2.0 */
/* The samples file while a tuner writes it: locked, every line on disk before the next. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
    int lock; /* the file at `path` where lines go to a new one, else -1 */
    size_t bytes;
    char *path;   /* beside the profile */
    char *place;  /* where lines go: `path`, or that and ".new" */
    int discards; /* samples there that the first line takes the place of */
    arf_samples_header header;
};

void arf_samples_close(arf_samples_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->file >= 0)
        close(writer->file); /* lets the lock go */
    if (writer->lock >= 0)
        close(writer->lock);
    free(writer->path);
    free(writer->place);
    free(writer);
}

const char *arf_samples_place(const arf_samples_writer *writer)
{
    return writer->place;
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
                        "%s: full: another line would pass the limit of %zu bytes", writer->place,
                        ARF_SAMPLES_MAX_BYTES);
    ARF_TRY(arf_append_line(writer->file, writer->place, line, error));
    writer->bytes += bytes;
    return ARFUSE_OK;
}

/* ---- what is there already --------------------------------------------------------------------
 */

/* What was measured under other conditions must not be mixed with what is measured now, and what
 * belongs to another profile not be replaced by it. */
static arfuse_status check_same(const char *path, const arf_samples_header *old,
                                const arf_samples_header *header, bool resume, arf_error *error)
{
    arf_profile_key key = {header->set, header->shape, header->device};
    arf_profile_key old_key = {old->set, old->shape, old->device};
    const char *what = NULL;
    if (!arf_profile_key_equal(&key, &old_key)) {
        if (!resume)
            return arf_fail(error, ARFUSE_PROFILE,
                            "%s: holds samples of another shape or device and is not replaced; "
                            "move it away, or use another --output",
                            path);
        what = "shape or device";
    } else if (memcmp(old->version, header->version, sizeof old->version) != 0) {
        what = "tuning versions";
    } else if (old->policy != header->policy) {
        what = "policy";
    }
    if (what == NULL || !resume)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_PROFILE,
                    "%s: holds samples of another %s, so they cannot be resumed; run without "
                    "--resume, or with another --output",
                    path, what);
}

typedef struct found {
    bool exists;
    size_t bytes; /* of whole lines: where the next one goes; 0 without a header */
    int samples;
} found;

/* A header that a killed writer has cut holds nothing; any other text without a line is not ours.
 */
static bool is_cut_header(const char *text, size_t bytes)
{
    static const char begin[] = "{ \"format\": \"arfuse-samples\"";
    return strncmp(text, begin, bytes < sizeof begin - 1 ? bytes : sizeof begin - 1) == 0;
}

static arfuse_status judge_text(const char *path, const char *text, size_t all,
                                const arf_samples_header *header, bool resume, found *f,
                                arf_error *error)
{
    arf_samples *samples = NULL;
    bool truncated;
    f->bytes = all;
    while (f->bytes > 0 && text[f->bytes - 1] != '\n')
        f->bytes--;
    if (f->bytes == 0)
        return is_cut_header(text, all)
                   ? ARFUSE_OK
                   : arf_fail(error, ARFUSE_PROFILE,
                              "%s: is no samples file and is not replaced; move it away", path);
    if (arf_samples_parse(path, text, f->bytes, &samples, &truncated, error) != ARFUSE_OK) {
        arf_error_prefix(error, "a file that holds no samples of this version is not replaced; "
                                "move it away");
        return error->status;
    }
    f->samples = samples->count;
    arfuse_status status = check_same(path, &samples->header, header, resume, error);
    arf_samples_free(samples);
    return status;
}

static arfuse_status refuse_link(const char *path, arf_error *error)
{
    return arf_fail(error, ARFUSE_FAILURE,
                    "%s: is a link, expected a file of its own; remove the link", path);
}

static arfuse_status look(const char *path, const arf_samples_header *header, bool resume, found *f,
                          arf_error *error)
{
    char *text = NULL;
    size_t bytes;
    struct stat about;
    *f = (found){0};
    if (lstat(path, &about) != 0)
        return errno == ENOENT || errno == ENOTDIR ? ARFUSE_OK : fail_errno(error, path, "stat");
    f->exists = true;
    if (S_ISLNK(about.st_mode))
        return refuse_link(path, error);
    arf_error reading = ARF_ERROR_INIT;
    if (arf_read_file(path, ARF_SAMPLES_MAX_BYTES, &text, &bytes, &reading) != ARFUSE_OK)
        return arf_fail(error, ARFUSE_FAILURE, "%s", reading.text); /* this is an output */
    arfuse_status status = judge_text(path, text, bytes, header, resume, f, error);
    free(text);
    return status;
}

static char *new_path(const char *path)
{
    char *made = malloc(strlen(path) + sizeof ".new");
    if (made != NULL)
        sprintf(made, "%s.new", path);
    return made;
}

arfuse_status arf_samples_judge(const char *path, const arf_samples_header *header, bool resume,
                                arf_error *error)
{
    char *fresh = new_path(path);
    found f;
    if (fresh == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", path);
    arfuse_status status = look(fresh, header, resume, &f, error);
    if (status == ARFUSE_OK) /* lines that are to come after a new file's do not touch the old */
        status = look(path, header, resume && !f.exists, &f, error);
    free(fresh);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

/* Opens and locks; -1 with the message. The file may be emptied: through a link that would be
 * somebody's file elsewhere. O_NONBLOCK: a pipe or a device must not hang the open. */
static int open_locked(const char *path, arf_error *error)
{
    struct stat about, named;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (file < 0) {
        if (errno == ELOOP)
            refuse_link(path, error);
        else
            fail_errno(error, path, "open");
        return -1;
    }
    /* A lock of the file itself goes when its holder goes, however that ends. One of a file that
     * was renamed over meanwhile locks nothing: its tuner has just ended. */
    if (fstat(file, &about) != 0)
        fail_errno(error, path, "stat");
    else if (!S_ISREG(about.st_mode))
        arf_fail(error, ARFUSE_FAILURE, "%s: is not a regular file; remove it", path);
    else if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno != EWOULDBLOCK)
        fail_errno(error, path, "lock");
    else if (flock(file, LOCK_EX | LOCK_NB) != 0 || stat(path, &named) != 0 ||
             named.st_ino != about.st_ino || named.st_dev != about.st_dev)
        arf_fail(error, ARFUSE_FAILURE,
                 "%s: another tuner is writing it; wait, or use another --output", path);
    else
        return file;
    close(file);
    return -1;
}

/* From `bytes` on; a file of nothing begins with a header. */
static arfuse_status start(arf_samples_writer *writer, arf_error *error)
{
    char *line = NULL;
    if (ftruncate(writer->file, (off_t)writer->bytes) != 0)
        return fail_errno(error, writer->place, "truncate");
    if (writer->bytes > 0)
        return ARFUSE_OK;
    ARF_TRY(arf_samples_header_line(&writer->header, &line, error));
    arfuse_status status = append(writer, line, error);
    free(line);
    return status;
}

/* Samples that a run without --resume finds stay until its own can replace them: those of a whole
 * run until its profile is stored, those of an interrupted one until it has measured something. */
static arfuse_status begin(arf_samples_writer *writer, bool resume, arf_error *error)
{
    found old, fresh;
    char *other = new_path(writer->path);
    writer->place = strdup(writer->path);
    if (other == NULL || writer->place == NULL) {
        free(other);
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory", writer->path);
    }
    arfuse_status status = ARFUSE_OK;
    if ((writer->file = open_locked(writer->path, error)) < 0)
        status = error->status;
    if (status == ARFUSE_OK)
        status = look(other, &writer->header, resume, &fresh, error);
    if (status == ARFUSE_OK)
        status = look(writer->path, &writer->header, resume && !fresh.exists, &old, error);
    if (status != ARFUSE_OK || !(fresh.exists || (!resume && old.samples > 0))) {
        free(other);
        ARF_TRY(status);
        writer->bytes = resume ? old.bytes : 0;
    } else {
        free(writer->place);
        writer->place = other;
        writer->lock = writer->file;
        if ((writer->file = open_locked(other, error)) < 0)
            return error->status;
        writer->bytes = resume ? fresh.bytes : 0;
        writer->discards = resume ? 0 : fresh.samples;
    }
    return writer->discards > 0 ? ARFUSE_OK : start(writer, error);
}

int arf_samples_discards(const arf_samples_writer *writer)
{
    return writer->discards;
}

static arfuse_status discard(arf_samples_writer *writer, arf_error *error)
{
    if (writer->discards == 0)
        return ARFUSE_OK;
    writer->discards = 0;
    return start(writer, error);
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
    made->file = made->lock = -1;
    arfuse_status status = begin(made, resume, error);
    if (status != ARFUSE_OK) {
        arf_samples_close(made);
        return status;
    }
    *writer = made;
    return ARFUSE_OK;
}

arfuse_status arf_samples_keep(arf_samples_writer *writer, arf_error *error)
{
    if (writer->lock < 0)
        return ARFUSE_OK;
    ARF_TRY(discard(writer, error));
    if (rename(writer->place, writer->path) != 0)
        return fail_errno(error, writer->place, "rename it over the samples of the run before");
    strcpy(writer->place, writer->path);
    return ARFUSE_OK;
}

arfuse_status arf_samples_append(arf_samples_writer *writer, const arf_sample *sample,
                                 arf_error *error)
{
    char *line = NULL;
    ARF_TRY(discard(writer, error));
    ARF_TRY(arf_sample_line(&writer->header, sample, &line, error));
    arfuse_status status = append(writer, line, error);
    free(line);
    return status;
}
