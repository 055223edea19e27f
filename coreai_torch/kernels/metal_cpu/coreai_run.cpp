// Runs a kernel over its grid: threadgroups on the cores, their threads on fibres.
//
// All threads of a simdgroup run until each has finished or waits. Lanes that wait at a simd
// operation continue together, those at the earliest line first, as a GPU reconverges diverged
// lanes. When every thread of the threadgroup has finished or waits, the barrier opens.
#include "coreai_run.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace coreai {

__thread Thread* thread;
__thread Group* group;
__thread Worker* worker;
Launch launch;
Tensor tensors[MOST_TENSORS];
unsigned tensor_count;
static unsigned long next_group, group_count;
static pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER;

const unsigned* at_thread() {
    static const unsigned nowhere[3] = {0, 0, 0};
    return thread ? thread->place : nowhere;
}

void report(const char* kind, const void* pc, const char* format, ...) {
    pthread_mutex_lock(&reporting);
    const unsigned* place = at_thread();
    printf("%s\t%lx\t%u,%u,%u\t", kind, reinterpret_cast<unsigned long>(pc), place[0], place[1],
           place[2]);
    va_list rest;
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    printf("\n");
    fflush(stdout);
    pthread_mutex_unlock(&reporting);
}

void stop(int code) {
    fflush(stdout);
    _exit(code);
}

#ifndef COREAI_CHECKED
void atomic_access(const volatile void*, unsigned, bool, bool) {}
#endif

int tensor_at(const void* address) {
    auto* p = static_cast<const char*>(address);
    for (unsigned i = 0; i < tensor_count; ++i)
        if (p >= tensors[i].data && p < tensors[i].data + tensors[i].count * tensors[i].item)
            return int(i);
    return -1;
}

static int tensor_from(const void* data) {
    for (unsigned i = 0; i < tensor_count; ++i)
        if (tensors[i].data == data) return int(i);
    return -1;
}

void out_of_bounds(const void* data, unsigned axis, long index, long extent) {
    report("bounds", __builtin_return_address(0), "%d\t%u\t%ld\t%ld", tensor_from(data), axis,
           index, extent);
    stop(FOUND);
}

static void park() {
    Fibre* fibre = thread->fibre;
    switch_to(fibre->context, worker->scheduler);
}

void barrier(unsigned flags, int line) {
    thread->flags = flags;
    thread->line = line;
    thread->state = AT_BARRIER;
    park();
}

const Exchange& exchange(const void* value, unsigned bytes, int line) {
    memcpy(worker->put_out[thread->index], value, bytes);
    thread->bytes = bytes;
    thread->line = line;
    thread->state = AT_SIMD;
    park();
    return worker->exchange;
}

void simd_barrier(unsigned flags, int line) {
    bool nothing = false;
    exchange(&nothing, sizeof nothing, line);
    thread->past_simd_device += flags & 1;
    thread->past_simd_shared += flags >> 1 & 1;
}

void shared_memory(void* memory, unsigned bytes, const char* name) {
    Shared* found = nullptr;
    for (unsigned i = 0; i < worker->shared_count; ++i)
        if (worker->shared[i].memory == memory) found = &worker->shared[i];
    if (!found) {
        if (worker->shared_count == MOST_SHARED) {
            report("shared", nullptr, "%s", name);
            stop(FOUND);
        }
        found = &worker->shared[worker->shared_count++];
        *found = {static_cast<char*>(memory), bytes, name, 0, nullptr};
    }
    if (found->group == worker->groups_run) return;
    found->group = worker->groups_run;
    memset(memory, 0xff, bytes);  // threadgroup memory is not initialised
    check_shared(*found);
}

// Main loop of a fibre: run threads that have not started, one by one, until one has to wait.
static void carry() {
    for (;;) {
        Fibre* self = worker->running;
        while (worker->next < worker->end) {
            Thread* mine = &worker->threads[worker->next++];
            thread = mine;
            mine->fibre = self;
            mine->state = READY;
            coreai_run_kernel();
            mine->state = DONE;
        }
        worker->stacks.give_back(self);
        switch_to(self->context, worker->scheduler);
    }
}

static void run(Fibre* fibre) {
    worker->running = fibre;
    switch_to(worker->scheduler, fibre->context);
}

static void resume(Thread& one) {
    one.state = READY;
    thread = &one;
    run(one.fibre);
}

// Resume the lanes that wait at the earliest simd operation; return false if there are none.
static bool resolve(unsigned first, unsigned last) {
    int line = 0;
    bool waiting = false;
    for (unsigned i = first; i < last; ++i) {
        Thread& one = worker->threads[i];
        if (one.state != AT_SIMD || (waiting && one.line >= line)) continue;
        line = one.line;
        waiting = true;
    }
    if (!waiting) return false;
    unsigned long mask = 0;
    for (unsigned i = first; i < last; ++i) {
        Thread& one = worker->threads[i];
        if (one.state != AT_SIMD || one.line != line) continue;
        mask |= 1ul << (i - first);
        memcpy(worker->exchange.values[i - first], worker->put_out[i], one.bytes);
    }
    worker->exchange.mask = mask;
    for (unsigned i = first; i < last; ++i)
        if (mask >> (i - first) & 1) resume(worker->threads[i]);
    return true;
}

static void settle(unsigned first, unsigned last) {
    for (unsigned i = first; i < last; ++i)
        if (worker->threads[i].state == READY) resume(worker->threads[i]);
    worker->end = last;
    while (worker->next < last) run(worker->stacks.take(carry));
    while (resolve(first, last)) {
    }
}

// Open the barrier that threads wait at; return false if no thread waits.
static bool open_barrier() {
    Thread* first = nullptr;
    unsigned waiting = 0;
    unsigned flags = ~0u;
    for (unsigned i = 0; i < group->threads; ++i) {
        Thread& one = worker->threads[i];
        if (one.state != AT_BARRIER) continue;
        if (!first) first = &one;
        check_barrier(*first, one);
        flags &= one.flags;
        ++waiting;
        one.state = READY;
    }
    if (!first) return false;
    if (waiting < group->threads) check_early_return(*first, waiting);
    group->past_device += flags & 1;
    group->past_shared += flags >> 1 & 1;
    return true;
}

static void begin_group(unsigned long number) {
    Group& g = *group;
    g = {};
    unsigned long rest = number;
    for (int a = 0; a < 3; ++a) {
        g.place[a] = unsigned(rest % launch.groups[a]);
        rest /= launch.groups[a];
        unsigned from = g.place[a] * launch.group[a];
        unsigned left = launch.grid[a] - from;
        g.size[a] = left < launch.group[a] ? left : launch.group[a];
    }
    g.threads = g.size[0] * g.size[1] * g.size[2];
    unsigned i = 0;
    for (unsigned z = 0; z < g.size[2]; ++z)
        for (unsigned y = 0; y < g.size[1]; ++y)
            for (unsigned x = 0; x < g.size[0]; ++x, ++i) {
                Thread& one = worker->threads[i];
                one = {};
                const unsigned local[3] = {x, y, z};
                for (int a = 0; a < 3; ++a) {
                    one.local[a] = local[a];
                    one.place[a] = g.place[a] * launch.group[a] + local[a];
                }
                one.index = i;
            }
    worker->next = 0;
    ++worker->groups_run;
}

static void run_group(unsigned long number) {
    begin_group(number);
    worker->number = number;
    do {
        for (unsigned first = 0; first < group->threads; first += LANES) {
            unsigned last = first + LANES < group->threads ? first + LANES : group->threads;
            settle(first, last);
        }
    } while (open_barrier());
    thread = nullptr;
    check_group_end();
}

static void crashed(int signal, siginfo_t* info, void*) {
    const void* address = info->si_addr;
    int tensor = tensor_at(address);
    if (worker && worker->stacks.guards(address)) report("stack", nullptr, "%lu", STACK);
    else if (tensor >= 0 && !tensors[tensor].is_result)
        report("input", nullptr, "%d\t%ld", tensor,
               (static_cast<const char*>(address) - tensors[tensor].data) / tensors[tensor].item);
    else report("crash", nullptr, "%d", signal);
    stop(FOUND);
}

static void* work(void*) {
    worker = new Worker(launch.group[0] * launch.group[1] * launch.group[2] + 1);
    Group mine;
    group = &mine;
    stack_t other = {};
    other.ss_size = 64 * 1024;
    other.ss_sp = malloc(other.ss_size);
    sigaltstack(&other, nullptr);
    for (;;) {
        unsigned long number = __atomic_fetch_add(&next_group, 1, __ATOMIC_RELAXED);
        if (number >= group_count) return nullptr;
        run_group(number);
    }
}

static long number_from(char**& arguments) { return atol(*arguments++); }

// Arguments: file, number of input bytes, number of bytes, workers, grid, threadgroup, and for each
// tensor its offset, whether it is a result, bytes of an element, rank and extents.
static unsigned read_arguments(char** arguments) {
    int file = open(*arguments++, O_RDWR);
    long inputs = number_from(arguments), bytes = number_from(arguments);
    unsigned workers = unsigned(number_from(arguments));
    for (auto& size : launch.grid) size = unsigned(number_from(arguments));
    for (auto& size : launch.group) size = unsigned(number_from(arguments));
    group_count = 1;
    for (int a = 0; a < 3; ++a) {
        launch.groups[a] = (launch.grid[a] + launch.group[a] - 1) / launch.group[a];
        group_count *= launch.groups[a];
    }
    void* memory = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || memory == MAP_FAILED) exit(UNFIT);
    if (inputs) mprotect(memory, size_t(inputs), PROT_READ);
    while (*arguments) {
        Tensor& tensor = tensors[tensor_count++];
        tensor.data = static_cast<char*>(memory) + number_from(arguments);
        tensor.is_result = number_from(arguments) != 0;
        tensor.item = unsigned(number_from(arguments));
        tensor.rank = unsigned(number_from(arguments));
        tensor.count = 1;
        for (unsigned a = 0; a < tensor.rank; ++a)
            tensor.count *= tensor.extents[a] = number_from(arguments);
    }
    return workers;
}

static int run_all(char** arguments) {
    unsigned workers = read_arguments(arguments);
    struct sigaction action = {};
    action.sa_sigaction = crashed;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
    check_begin();
    if (workers > group_count) workers = unsigned(group_count);
    pthread_t handles[64];
    if (workers > 64) workers = 64;
    for (unsigned i = 0; i < workers; ++i) pthread_create(&handles[i], nullptr, work, nullptr);
    for (unsigned i = 0; i < workers; ++i) pthread_join(handles[i], nullptr);
    return check_end();
}

}  // namespace coreai

int main(int, char** arguments) { return coreai::run_all(arguments + 1); }

// Handler of -fsanitize=bounds for an index out of the bounds of an array of known length.
struct Place {
    const char* file;
    unsigned line, column;
};
struct Described {
    unsigned short kind, info;
    char name[1];
};
struct OutOfBounds {
    Place place;
    Described *array, *index;
};
static void array_bounds(OutOfBounds* data, unsigned long index) {
    coreai::report("array", nullptr, "%u\t%ld\t%s", data->place.line, long(index),
                   data->array->name);
    coreai::stop(coreai::FOUND);
}
extern "C" void __ubsan_handle_out_of_bounds(OutOfBounds* data, unsigned long index) {
    array_bounds(data, index);
}
extern "C" void __ubsan_handle_out_of_bounds_abort(OutOfBounds* data, unsigned long index) {
    array_bounds(data, index);
}
