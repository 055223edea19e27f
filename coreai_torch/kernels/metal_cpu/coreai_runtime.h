// The interface between kernels and the program that runs them.
#pragma once

namespace coreai {

constexpr unsigned LANES = 32;         // of a simdgroup
constexpr unsigned MOST_THREADS = 1024;  // of a threadgroup
constexpr unsigned MOST_TENSORS = 32;
constexpr unsigned MOST_AXES = 16;
constexpr unsigned MOST_BYTES = 64;  // of a value that lanes exchange

enum State : unsigned { FRESH, READY, AT_SIMD, AT_BARRIER, DONE };

struct Fibre;

// One thread of the grid. It waits at a barrier or simd operation until its group reaches it.
struct Thread {
    unsigned place[3];  // in the grid
    unsigned local[3];  // in its threadgroup
    unsigned index;     // in its threadgroup, counted along x, then y, then z
    State state;
    int line;         // of the barrier or simd operation it waits at
    unsigned flags;   // of memory that its barrier orders
    unsigned bytes;   // of the value that it publishes to other lanes
    unsigned past_simd_device, past_simd_shared;  // barriers of its simdgroup so far
    Fibre* fibre;
};

struct Group {
    unsigned place[3];  // in the grid, in threadgroups
    unsigned size[3];   // smaller than launched at the far edges of the grid
    unsigned threads;
    unsigned past_device, past_shared;  // barriers so far that order device or threadgroup memory
};

struct Launch {
    unsigned grid[3], group[3], groups[3];
};

struct Tensor {
    char* data;
    unsigned item;  // bytes of an element
    unsigned rank;
    bool is_result;
    long extents[MOST_AXES];  // the fastest axis first
    long count;
};

// The values that the lanes at one operation publish, by lane; `mask` has a bit for each lane.
struct Exchange {
    unsigned long mask;
    alignas(16) unsigned char values[LANES][MOST_BYTES];
};

extern __thread Thread* thread;
extern __thread Group* group;
extern Launch launch;
extern Tensor tensors[MOST_TENSORS];

void barrier(unsigned flags, int line);
void simd_barrier(unsigned flags, int line);
const Exchange& exchange(const void* value, unsigned bytes, int line);
void shared_memory(void* memory, unsigned bytes, const char* name);
void atomic_access(const volatile void* memory, unsigned bytes, bool writes, bool reads);
[[noreturn]] __attribute__((cold, noinline)) void out_of_bounds(const void* data, unsigned axis,
                                                                long index, long extent);

}  // namespace coreai

// Generated for each kernel: calls it with the arguments of the current thread.
void coreai_run_kernel();
