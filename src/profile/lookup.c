/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/lookup.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "profile/read.h"
#include "rules/knobs.h"

#define PATH_BYTES 4096

/* ---- keys ---------------------------------------------------------------------------------------
 */

arf_profile_key arf_profile_key_of(const arf_profile *profile)
{
    return (arf_profile_key){
        .set = profile->set, .shape = profile->shape, .device = profile->device};
}

/* Names are compared as folder names are: white space, dashes and case do not tell devices apart.
 */
static bool same_device_name(const arf_device_key *a, const arf_device_key *b)
{
    arf_device_key first = *a, second = *b;
    char folder[ARF_NAME_TEXT + 16], other[ARF_NAME_TEXT + 16];
    first.link = second.link;
    arf_device_folder(&first, folder);
    arf_device_folder(&second, other);
    return strcmp(folder, other) == 0;
}

bool arf_profile_key_equal(const arf_profile_key *a, const arf_profile_key *b)
{
    const arf_device_key *x = &a->device, *y = &b->device;
    return a->set == b->set && arf_shape_equal(&a->shape, &b->shape) && same_device_name(x, y) &&
           x->capability_major == y->capability_major &&
           x->capability_minor == y->capability_minor && x->sm_count == y->sm_count &&
           x->link == y->link && x->nodes == y->nodes && x->ranks_per_gpu == y->ranks_per_gpu;
}

static const char *switch_prefix(arf_switch state)
{
    return state == ARF_EITHER ? "either " : state == ARF_ON ? "" : "no ";
}

void arf_profile_key_text(const arf_profile_key *key, char *text, size_t size)
{
    const arf_shape *shape = &key->shape;
    const arf_device_key *device = &key->device;
    char kernels[64] = "";
    if (key->set != ARF_SET_ARFUSE)
        snprintf(kernels, sizeof kernels, ", kernels %s", arf_set_name(key->set));
    snprintf(text, size,
             "tp_size %d, hidden_size %d, top_k %d, bf16, %srms_norm, %sresidual, "
             "%sshared_expert on %s (%d.%d, %d SMs, %s, %d node%s, %d rank%s a GPU%s)",
             shape->tp_size, shape->hidden_size, shape->top_k, switch_prefix(shape->rms_norm),
             switch_prefix(shape->residual), switch_prefix(shape->shared_expert), device->name,
             device->capability_major, device->capability_minor, device->sm_count,
             arf_link_name(device->link), device->nodes, device->nodes == 1 ? "" : "s",
             device->ranks_per_gpu, device->ranks_per_gpu == 1 ? "" : "s", kernels);
}

/* ---- matching
 * ------------------------------------------------------------------------------------- */

/* False and the reason when two numbers differ. */
static bool same(const char *name, int has, int needs, char reason[ARF_REASON_TEXT])
{
    if (has == needs)
        return true;
    snprintf(reason, ARF_REASON_TEXT, "%s is %d, %d is needed", name, has, needs);
    return false;
}

static bool same_word(const char *name, const char *has, const char *needs,
                      char reason[ARF_REASON_TEXT])
{
    if (strcmp(has, needs) == 0)
        return true;
    snprintf(reason, ARF_REASON_TEXT, "%s is %s, %s is needed", name, has, needs);
    return false;
}

static bool same_switch(const char *name, arf_switch has, arf_switch needs,
                        char reason[ARF_REASON_TEXT])
{
    return has == ARF_EITHER ||
           same_word(name, has == ARF_ON ? "on" : "off", needs == ARF_ON ? "on" : "off", reason);
}

static bool same_device(const arf_device_key *has, const arf_device_key *needs,
                        char reason[ARF_REASON_TEXT])
{
    char capability[16], needed[16];
    if (!same_device_name(has, needs))
        return same_word("device name", has->name, needs->name, reason);
    snprintf(capability, sizeof capability, "%d.%d", has->capability_major, has->capability_minor);
    snprintf(needed, sizeof needed, "%d.%d", needs->capability_major, needs->capability_minor);
    return same_word("compute_capability", capability, needed, reason) &&
           same("sm_count", has->sm_count, needs->sm_count, reason) &&
           same_word("link", arf_link_name(has->link), arf_link_name(needs->link), reason) &&
           same("nodes", has->nodes, needs->nodes, reason) &&
           same("ranks_per_gpu", has->ranks_per_gpu, needs->ranks_per_gpu, reason);
}

/* What each route needs of the kernels that are here: the same meaning of its tuning. */
static bool runnable(const arf_profile *profile, char reason[ARF_REASON_TEXT])
{
    for (int i = 0; i < ARF_PATTERNS; i++)
        for (int j = 0; j < profile->routes[i].count; j++) {
            const arf_plan *plan = &profile->routes[i].route[j].plan;
            const char *protocol = arf_protocol_name(plan->protocol);
            int has = profile->version[plan->protocol];
            int needs = arf_protocol_version(profile->set, plan->protocol);
            if (has != needs) {
                snprintf(reason, ARF_REASON_TEXT,
                         "tuning version of %s is %d, the kernels here have %d", protocol, has,
                         needs);
                return false;
            }
            if (plan->tuning_null) {
                snprintf(reason, ARF_REASON_TEXT, "the tuning of %s route %d (%s) is not known",
                         arf_pattern_name((arf_pattern)i), j, protocol);
                return false;
            }
        }
    return true;
}

bool arf_profile_matches(const arf_profile *profile, const arf_profile_key *key,
                         char reason[ARF_REASON_TEXT])
{
    const arf_shape *has = &profile->shape, *needs = &key->shape;
    reason[0] = '\0';
    return same_word("kernel set", arf_set_name(profile->set), arf_set_name(key->set), reason) &&
           same("tp_size", has->tp_size, needs->tp_size, reason) &&
           same("hidden_size", has->hidden_size, needs->hidden_size, reason) &&
           same("top_k", has->top_k, needs->top_k, reason) &&
           same_switch("rms_norm", has->rms_norm, needs->rms_norm, reason) &&
           same_switch("residual", has->residual, needs->residual, reason) &&
           same_switch("shared_expert", has->shared_expert, needs->shared_expert, reason) &&
           same_device(&profile->device, &key->device, reason) && runnable(profile, reason);
}

/*
 * How far a profile is from what is needed, for retargeting; infinite when it is no source at all.
 * One unit is a factor of two in hidden size. Ranks count double: the traffic of LL and the owner
 * split of BT and HT change with them. Another device of the same link is worth three units.
 */
static double distance(const arf_profile *profile, const arf_profile_key *key)
{
    const arf_shape *a = &profile->shape, *b = &key->shape;
    char reason[ARF_REASON_TEXT];
    if (profile->set != key->set || profile->device.link != key->device.link ||
        !runnable(profile, reason) || (b->top_k > 0 && profile->routes[ARF_FINALIZE].count == 0))
        return INFINITY;
    int switches = (a->rms_norm != ARF_EITHER && a->rms_norm != b->rms_norm) +
                   (a->residual != b->residual) + (a->shared_expert != b->shared_expert);
    return fabs(log2((double)a->hidden_size / b->hidden_size)) +
           2 * fabs(log2((double)a->tp_size / b->tp_size)) +
           0.5 * fabs(log2((a->top_k + 1.0) / (b->top_k + 1.0))) + switches +
           (same_device_name(&profile->device, &key->device) ? 0 : 3) +
           (profile->device.sm_count == key->device.sm_count ? 0 : 1) +
           fabs(log2((double)profile->device.nodes / key->device.nodes)) +
           fabs(log2((double)profile->device.ranks_per_gpu / key->device.ranks_per_gpu));
}

/* ---- folders
 * -------------------------------------------------------------------------------------- */

static arfuse_status add_folders(char *folders, size_t size, const char *folder, const char *below,
                                 arf_error *error)
{
    size_t used = strlen(folders), length;
    for (; folder != NULL && *folder != '\0'; folder += length + (folder[length] == ':')) {
        length = strcspn(folder, ":");
        if (length == 0) /* an empty one is none, not the working folder */
            continue;
        int more = snprintf(folders + used, size - used, "%s%.*s%s", used > 0 ? ":" : "",
                            (int)length, folder, below);
        if (more >= 0 && (size_t)more < size - used) {
            used += (size_t)more;
            continue;
        }
        return arf_fail(error, ARFUSE_USAGE,
                        "the list of profile folders is longer than %zu bytes; shorten "
                        "ARFUSE_PROFILE_PATH",
                        size);
    }
    return ARFUSE_OK;
}

arfuse_status arf_profile_folders(const char *configured, char *folders, size_t size,
                                  arf_error *error)
{
    folders[0] = '\0';
    if (configured != NULL)
        return add_folders(folders, size, configured, "", error);
    ARF_TRY(add_folders(folders, size, getenv("ARFUSE_PROFILE_PATH"), "", error));
    /* The XDG rules: a relative value is to be ignored. */
    const char *config = getenv("XDG_CONFIG_HOME");
    if (config != NULL && config[0] == '/')
        ARF_TRY(add_folders(folders, size, config, "/arfuse/profiles", error));
    else
        ARF_TRY(add_folders(folders, size, getenv("HOME"), "/.config/arfuse/profiles", error));
    return add_folders(folders, size, ARF_DATADIR, "/arfuse/profiles", error);
}

/* ---- searching
 * ------------------------------------------------------------------------------------ */

typedef struct search {
    const arf_profile_key *key;
    const arf_log *log;
    arf_found found;
    double distance; /* of `best`; 0 when it is exact */
    arf_profile *best;
    const char *folder, *best_folder; /* of the list: searched now, and where `best` is from */
    bool ambiguous;                   /* said already */
    char *path;
    size_t path_size;
} search;

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Not alphasort, which follows the host program's locale. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_profile_name(const char *name)
{
    size_t length = strlen(name);
    const char *const ends[] = {".schema.json", ".json"};
    for (int i = 0; i < 2; i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(name + length - end, ends[i]) == 0)
            return i == 1; /* a schema is no profile */
    }
    return false;
}

/* A second one of the key. A folder ahead of others is how one's own profile stands before that of
 * the system; two in one folder are an oversight, and which one counts hangs on their names. */
static void note_other(search *s, const char *path)
{
    if (s->folder != s->best_folder) {
        arf_logf(s->log, ARFUSE_LOG_INFO,
                 "%s: not used: %s, of a folder before it, has the same key", path, s->path);
        return;
    }
    if (!s->ambiguous)
        arf_logf(s->log, ARFUSE_LOG_WARNING,
                 "%s and %s are profiles of the same key; the first is used, by the order of their "
                 "names; remove one, or name one in ARFUSE_PROFILE",
                 s->path, path);
    s->ambiguous = true;
}

static void consider(search *s, const char *path)
{
    arf_profile *profile = NULL;
    arf_error error = ARF_ERROR_INIT;
    char reason[ARF_REASON_TEXT];
    if (arf_profile_load(path, &profile, &error) != ARFUSE_OK) {
        arf_logf(s->log, ARFUSE_LOG_WARNING, "%s; skipped", error.text);
        return;
    }
    bool exact = arf_profile_matches(profile, s->key, reason);
    if (s->found == ARF_FOUND_EXACT) {
        if (exact)
            note_other(s, path);
        arf_profile_free(profile);
        return;
    }
    double far = exact ? 0 : distance(profile, s->key);
    if (!exact)
        arf_logf(s->log, ARFUSE_LOG_DEBUG, "%s: not used: %s", path, reason);
    /* Of equally near ones the first that is met stays: folder order, then name. */
    if (!exact && (isinf(far) || (s->best != NULL && far >= s->distance))) {
        arf_profile_free(profile);
        return;
    }
    arf_profile_free(s->best);
    s->best = profile;
    s->best_folder = s->folder;
    s->distance = far;
    s->found = exact ? ARF_FOUND_EXACT : ARF_FOUND_NEAREST;
    snprintf(s->path, s->path_size, "%s", path);
}

/* What is absent is no news: most folders of the default order are, and a HOME such as /dev/null
 * has none below it. What is there and cannot be looked into could hold the very profile. */
static void note_unread(const search *s, const char *path)
{
    const int cause = errno;
    struct stat about;
    if (cause != ENOENT && (cause != ENOTDIR || stat(path, &about) == 0))
        arf_logf(s->log, ARFUSE_LOG_WARNING, "%s: cannot search for profiles: %s; skipped", path,
                 strerror(cause));
}

/* Files of a folder, then those of the folders in it, each in order of name, so that every machine
 * takes the same. Folders further down (published ones) are not searched. */
static void search_folder(search *s, const char *folder, int below)
{
    struct dirent **entry;
    int count = scandir(folder, &entry, visible, by_bytes);
    if (count < 0)
        note_unread(s, folder);
    for (int folders = 0; folders <= (below > 0) && count > 0; folders++)
        for (int i = 0; i < count; i++) {
            char path[PATH_BYTES];
            struct stat about;
            if (arf_join_path(path, sizeof path, folder, entry[i]->d_name, NULL) != ARFUSE_OK)
                continue;
            if (stat(path, &about) != 0) {
                if (!folders)
                    note_unread(s, path);
                continue;
            }
            if (S_ISDIR(about.st_mode) && folders)
                search_folder(s, path, below - 1);
            else if (!folders && is_profile_name(entry[i]->d_name))
                consider(s, path);
        }
    for (int i = 0; i < count; i++)
        free(entry[i]);
    if (count >= 0)
        free(entry);
}

arfuse_status arf_profile_find(const arf_profile_key *key, const char *folders, const arf_log *log,
                               arf_found *found, arf_profile **profile, char *path,
                               size_t path_size, arf_error *error)
{
    search s = {
        .key = key, .log = log, .found = ARF_FOUND_NONE, .path = path, .path_size = path_size};
    char *list = strdup(folders), *rest = NULL;
    if (list == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for the list of profile folders");
    path[0] = '\0';
    for (char *folder = strtok_r(list, ":", &rest); folder != NULL;
         folder = strtok_r(NULL, ":", &rest)) {
        s.folder = folder;
        search_folder(&s, folder, 1);
    }
    free(list);
    *found = s.found;
    *profile = s.best;
    return ARFUSE_OK;
}
