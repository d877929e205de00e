/* SPDX-License-Identifier: Apache-2.0 */
#include "emulator/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 64 * 1024 };

struct emu_fiber {
    void (*body)(void *);
    void *argument;
    char *stack;
    emu_fiber *next; /* of those that were dropped */
#ifdef __x86_64__
    void *own, *other; /* stack pointers while not running */
#else
    ucontext_t own, other;
#endif
};

static emu_fiber *dropped;

static emu_fiber *take(void)
{
    emu_fiber *fiber = dropped;
    if (fiber != NULL) {
        dropped = fiber->next;
        return fiber;
    }
    fiber = calloc(1, sizeof *fiber);
    if (fiber != NULL)
        fiber->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber == NULL || fiber->stack == MAP_FAILED) {
        fprintf(stderr, "emulator: out of memory for fibers\n");
        exit(1);
    }
    return fiber;
}

static void begin(emu_fiber *fiber)
{
    fiber->body(fiber->argument);
    abort(); /* it had to pause for good */
}

#ifdef __x86_64__
/*
 * By hand, since swapcontext makes a system call each time. Saves what the calling convention asks
 * a function to keep; rounding modes are the same in all fibers.
 */
void emu_fiber_switch(void **save, void *load);
void emu_fiber_first(void);
__asm__(".text\n"
        ".globl emu_fiber_switch\n"
        ".hidden emu_fiber_switch\n"
        ".type emu_fiber_switch, @function\n"
        "emu_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".globl emu_fiber_first\n"
        ".hidden emu_fiber_first\n"
        ".type emu_fiber_first, @function\n"
        "emu_fiber_first:\n" /* the function is in rbx, its argument in r12 */
        "    movq %r12, %rdi\n"
        "    call *%rbx\n"
        "    ud2\n");

static void prepare(emu_fiber *fiber)
{
    uint64_t *top = (uint64_t *)(void *)(fiber->stack + STACK_BYTES);
    *--top = 0;
    *--top = 0; /* rsp is a multiple of 16 where the first function is called */
    *--top = (uint64_t)(uintptr_t)emu_fiber_first;
    *--top = 0;                          /* rbp */
    *--top = (uint64_t)(uintptr_t)begin; /* rbx */
    *--top = (uint64_t)(uintptr_t)fiber; /* r12 */
    *--top = 0, *--top = 0, *--top = 0;  /* r13 to r15 */
    fiber->own = top;
}
void emu_fiber_resume(emu_fiber *fiber)
{
    emu_fiber_switch(&fiber->other, fiber->own);
}
void emu_fiber_pause(emu_fiber *fiber)
{
    emu_fiber_switch(&fiber->own, fiber->other);
}
#else
static void begin_split(unsigned high, unsigned low)
{
    begin((emu_fiber *)(uintptr_t)((uint64_t)high << 32 | low));
}
static void prepare(emu_fiber *fiber)
{
    const uint64_t address = (uint64_t)(uintptr_t)fiber;
    getcontext(&fiber->own);
    fiber->own.uc_stack.ss_sp = fiber->stack;
    fiber->own.uc_stack.ss_size = STACK_BYTES;
    fiber->own.uc_link = NULL;
    makecontext(&fiber->own, (void (*)(void))begin_split, 2, (unsigned)(address >> 32),
                (unsigned)address);
}
void emu_fiber_resume(emu_fiber *fiber)
{
    swapcontext(&fiber->other, &fiber->own);
}
void emu_fiber_pause(emu_fiber *fiber)
{
    swapcontext(&fiber->own, &fiber->other);
}
#endif

emu_fiber *emu_fiber_start(void (*body)(void *), void *argument)
{
    emu_fiber *fiber = take();
    fiber->body = body;
    fiber->argument = argument;
    prepare(fiber);
    return fiber;
}

void emu_fiber_drop(emu_fiber *fiber)
{
    fiber->next = dropped;
    dropped = fiber;
}

void emu_fibers_free(void)
{
    while (dropped != NULL) {
        emu_fiber *fiber = dropped;
        dropped = fiber->next;
        munmap(fiber->stack, STACK_BYTES);
        free(fiber);
    }
}
