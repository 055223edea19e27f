// Internal declarations of the program that runs kernels.
#pragma once
#include <cstdarg>

#include "coreai_fibres.h"
#include "coreai_runtime.h"

namespace coreai {

enum Code { FINE = 0, FOUND = 3, UNFIT = 4 };
constexpr unsigned MOST_SHARED = 64;

struct Cell;

// One variable in threadgroup memory.
struct Shared {
    char* memory;
    unsigned bytes;
    const char* name;
    unsigned long group;  // the threadgroup that it was last initialised for
    Cell* cells;          // state of each byte, for the checks
};

// A worker thread on one core, which runs one threadgroup at a time.
struct Worker {
    Context scheduler;
    Stacks stacks;
    Fibre* running = nullptr;
    unsigned next = 0, end = 0;  // threads of the group that have not started
    unsigned long number = 0, groups_run = 0;
    Thread threads[MOST_THREADS];
    unsigned char put_out[MOST_THREADS][MOST_BYTES];
    Exchange exchange;
    Shared shared[MOST_SHARED];
    unsigned shared_count = 0;
    explicit Worker(size_t threads) : stacks(threads) {}
};

extern __thread Worker* worker;
extern unsigned tensor_count;

// Print one line: kind, code address, position of the thread, details.
__attribute__((format(printf, 3, 4))) void report(const char* kind, const void* pc,
                                                  const char* format, ...);
[[noreturn]] void stop(int code);
int tensor_at(const void* address);

#ifdef COREAI_CHECKED
void check_begin();
void check_shared(Shared& shared);
void check_barrier(const Thread& first, const Thread& other);
void check_early_return(const Thread& waiting, unsigned count);
void check_group_end();
int check_end();
#else
inline void check_begin() {}
inline void check_shared(Shared&) {}
inline void check_barrier(const Thread&, const Thread&) {}
inline void check_early_return(const Thread&, unsigned) {}
inline void check_group_end() {}
inline int check_end() { return FINE; }
#endif

}  // namespace coreai
