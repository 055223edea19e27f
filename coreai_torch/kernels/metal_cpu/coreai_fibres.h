// Fibres: stacks that threads run on, and the switch between them.
#pragma once
#include <sys/mman.h>
#include <cstddef>
#include <cstdlib>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace coreai {

constexpr size_t STACK = 128 * 1024, PAGE = 4096;

#if defined(__x86_64__)
struct Context {
    void* stack_pointer;
};
extern "C" void coreai_switch(void** from, void* to) asm("coreai_switch");
asm(R"(
.text
.weak coreai_switch
coreai_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
inline void prepare(Context& context, char* top, void (*entry)()) {
    void** frame = reinterpret_cast<void**>(top);
    *--frame = nullptr;  // the slot of the return address: entry never returns
    *--frame = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--frame = nullptr;
    context.stack_pointer = frame;
}
inline void switch_to(Context& from, Context& to) {
    coreai_switch(&from.stack_pointer, to.stack_pointer);
}
#elif defined(__aarch64__)
struct Context {
    void* stack_pointer;
};
extern "C" void coreai_switch(void** from, void* to) asm("coreai_switch");
asm(R"(
.text
.weak coreai_switch
.p2align 2
coreai_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
inline void prepare(Context& context, char* top, void (*entry)()) {
    void** frame = reinterpret_cast<void**>(top - 160);
    for (int saved = 0; saved < 20; ++saved) frame[saved] = nullptr;
    frame[11] = reinterpret_cast<void*>(entry);  // x30, the return address of the switch
    context.stack_pointer = frame;
}
inline void switch_to(Context& from, Context& to) {
    coreai_switch(&from.stack_pointer, to.stack_pointer);
}
#else
struct Context {
    ucontext_t saved;
};
inline void prepare(Context& context, char* top, void (*entry)()) {
    getcontext(&context.saved);
    context.saved.uc_stack.ss_sp = top - STACK / 2;
    context.saved.uc_stack.ss_size = STACK / 2;
    context.saved.uc_link = nullptr;
    makecontext(&context.saved, entry, 0);
}
inline void switch_to(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }
#endif

struct Fibre {
    Context context;
    Fibre* next;  // in the list of free fibres
};

// The stacks of one worker, with a guard page between them.
struct Stacks {
    char* base = nullptr;
    size_t made = 0, most;
    Fibre* free = nullptr;
    Fibre* all;

    explicit Stacks(size_t count) : most(count), all(new Fibre[count]) {
        void* memory = mmap(nullptr, count * (STACK + PAGE), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        base = static_cast<char*>(memory);
    }
    Fibre* take(void (*entry)()) {
        if (free) {
            Fibre* fibre = free;
            free = fibre->next;
            return fibre;
        }
        char* low = base + made * (STACK + PAGE);
        mprotect(low, PAGE, PROT_NONE);
        // Vary the offset: stack tops at equal page offsets would share the same cache sets.
        char* top = low + STACK + PAGE - (made * 320) % PAGE / 64 * 64;
        Fibre* fibre = &all[made++];
        prepare(fibre->context, top, entry);
        return fibre;
    }
    void give_back(Fibre* fibre) {
        fibre->next = free;
        free = fibre;
    }
    bool holds(const void* address) const {
        auto* p = static_cast<const char*>(address);
        return p >= base && p < base + most * (STACK + PAGE);
    }
    bool guards(const void* address) const {
        return holds(address) && size_t(static_cast<const char*>(address) - base) % (STACK + PAGE) < PAGE;
    }
};

}  // namespace coreai
