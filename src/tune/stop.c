/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that runs in a handler here uses lock-free atomics, write and _exit alone. Handlers
 * may run in any thread (a device may have some), so a signal is held back by a counter, not by a
 * mask.
 */
#include "tune/stop.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tune/voice.h"

#define EXIT_TIMEOUT 6
#define EXIT_INTERRUPTED 130

#define TEXT_BYTES 1024
static char advice[2][TEXT_BYTES]; /* the one not shown is written, then shown */
static atomic_int advice_shown;
static char watched[TEXT_BYTES];
static double watched_seconds;

static const arf_group *watched_group;
static atomic_int held, pending;
/* Steps count by two; odd: this rank has done its part of the step. */
static long long own_progress;

/* ---- text without the C library's help --------------------------------------------------------
 */

typedef struct line {
    char text[2 * TEXT_BYTES];
    size_t bytes;
} line;

static void add(line *l, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes > sizeof l->text - 1 - l->bytes)
        bytes = sizeof l->text - 1 - l->bytes;
    memcpy(l->text + l->bytes, text, bytes);
    l->bytes += bytes;
}

static void add_number(line *l, int number)
{
    char digit[12];
    int at = sizeof digit - 1;
    digit[at] = '\0';
    do
        digit[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    add(l, digit + at);
}

static void speak(line *l)
{
    add(l, "\n");
    arf_voice_raw(l->text, l->bytes);
}

/* ---- signals ----------------------------------------------------------------------------------
 */

static _Noreturn void leave_interrupted(int number)
{
    if (arf_voice_claim()) {
        line l = {.bytes = 0};
        add(&l, "arfuse-tune: ");
        add(&l, number == SIGINT ? "interrupted"
                : watched_group->mpi
                    ? "ended by the launcher (the job was cancelled, or another rank is gone)"
                    : "ended by SIGTERM");
        add(&l, "; no profile was written");
        const char *more = advice[atomic_load(&advice_shown)];
        if (more[0] != '\0') {
            add(&l, "; ");
            add(&l, more);
        }
        speak(&l);
    }
    _exit(EXIT_INTERRUPTED);
}

static void on_signal(int number)
{
    if (atomic_load(&held) > 0) {
        atomic_store(&pending, number);
        return;
    }
    leave_interrupted(number);
}

void arf_stop_hold(void)
{
    atomic_fetch_add(&held, 1);
}

void arf_stop_release(void)
{
    if (atomic_fetch_sub(&held, 1) == 1) {
        int number = atomic_load(&pending);
        if (number != 0)
            leave_interrupted(number);
    }
}

void arf_stop_advice(const char *text)
{
    int hidden = !atomic_load(&advice_shown);
    strncpy(advice[hidden], text, TEXT_BYTES - 1);
    atomic_store(&advice_shown, hidden);
}

/* ---- a step that does not end -----------------------------------------------------------------
 */

static bool stands(int process, bool behind)
{
    return watched_group->on_node[process] &&
           (atomic_load(&watched_group->page->progress[process]) < own_progress) == behind;
}

/* "process 1", "processes 0,2"; returns how many. */
static int add_processes(line *l, bool behind)
{
    const char *gap = "";
    int count = 0;
    for (int i = 0; i < watched_group->size; i++)
        count += stands(i, behind);
    add(l, count == 1 ? "process " : "processes ");
    for (int i = 0; i < watched_group->size; i++)
        if (stands(i, behind)) {
            add(l, gap);
            add_number(l, i);
            gap = ",";
        }
    return count;
}

static void on_alarm(int number)
{
    (void)number;
    if (arf_voice_claim()) {
        line l = {.bytes = 0};
        bool any = false;
        for (int i = 0; i < watched_group->size; i++)
            any |= stands(i, true);
        add(&l, "arfuse-tune: ");
        add(&l, watched);
        add(&l, " has not ended after ");
        add_number(&l, (int)watched_seconds);
        add(&l, " s: ");
        if (any) {
            add(&l, add_processes(&l, true) == 1 ? " of this node is behind, "
                                                 : " of this node are behind, ");
            add(&l, add_processes(&l, false) == 1 ? " waits" : " wait");
        } else {
            add(&l, "no process of this node is behind the others");
        }
        const char *more = advice[atomic_load(&advice_shown)];
        if (more[0] != '\0') {
            add(&l, "; ");
            add(&l, more);
        }
        speak(&l);
    }
    _exit(EXIT_TIMEOUT);
}

static void set_timer(double seconds)
{
    struct itimerval timer = {.it_value = {(time_t)seconds, (suseconds_t)(fmod(seconds, 1) * 1e6)}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

void arf_watch_begin(double seconds, const char *what)
{
    if (watched_group == NULL)
        return; /* nobody to wait for: a dry run */
    strncpy(watched, what, TEXT_BYTES - 1);
    watched_seconds = seconds;
    own_progress = own_progress / 2 * 2 + 2;
    atomic_store(&watched_group->page->progress[watched_group->rank], own_progress);
    set_timer(seconds);
}

void arf_watch_arrived(void)
{
    if (watched_group == NULL)
        return;
    own_progress |= 1;
    atomic_store(&watched_group->page->progress[watched_group->rank], own_progress);
}

void arf_watch_end(void)
{
    set_timer(0);
}

/* ---- installing -------------------------------------------------------------------------------
 */

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void arf_stop_install(const arf_group *group)
{
    watched_group = group;
    handle(SIGINT, on_signal);
    handle(SIGTERM, on_signal);
    handle(SIGALRM, on_alarm);
    /* A reader that has gone away (| head), or a limit on the size of files, is a failed write with
     * a message, not a silent death. */
    handle(SIGPIPE, SIG_IGN);
    handle(SIGXFSZ, SIG_IGN);
}

void arf_stop_ignore(void)
{
    set_timer(0);
    handle(SIGINT, SIG_IGN);
    handle(SIGTERM, SIG_IGN);
}
