// Records every access to results and to threadgroup memory, and reports accesses of two threads
// that no barrier orders. One worker runs all threadgroups, so nothing here needs a lock.
//
// The compiler's instrumentation for ThreadSanitizer calls these functions just before each
// access. Checks of the written value run at the next call or when the thread stops.
#include "coreai_run.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace coreai {

constexpr unsigned NOBODY = ~0u, MANY = ~0u - 1;

// The threads that accessed an element, and the number of barriers they had passed by then.
struct Access {
    unsigned thread = NOBODY;  // in the threadgroup
    unsigned group = 0, past = 0, past_simd = 0;
    bool atomic = false;
};
struct Cell {
    Access wrote, read;
    unsigned writer[3], first_reader[3], last_reader[3];  // their positions in the grid
    bool written = false;
};

// A tensor or a variable in threadgroup memory.
struct Region {
    const char* memory;
    unsigned long bytes;
    unsigned item;
    int tensor;  // -1: threadgroup memory
    const char* name;
    Cell* cells;
};

struct Pending {
    Region region;
    unsigned long cell;
    const void* pc;
    const char* how;
    unsigned other[3], place[3];
    unsigned char before[16];
};

static Region results[MOST_TENSORS];
static unsigned result_count;
static const char *low, *high;  // of all tensors
static Pending pending[64];  // the maximum number of elements of one access
static unsigned pending_count;
static unsigned findings;
static bool reported[MOST_TENSORS + MOST_SHARED][8];

static unsigned& past(const Region& region) {
    return region.tensor >= 0 ? group->past_device : group->past_shared;
}
static unsigned past_simd(const Region& region) {
    return region.tensor >= 0 ? thread->past_simd_device : thread->past_simd_shared;
}

static Access access_now(const Region& region, bool atomic) {
    return {thread->index, unsigned(worker->number), past(region), past_simd(region), atomic};
}

// Whether an earlier access by another thread is not ordered before the current access.
static bool unordered(const Region& region, const Access& before, bool atomic) {
    if (before.thread == NOBODY || before.thread == thread->index) {
        if (before.thread == NOBODY || before.group == unsigned(worker->number)) return false;
    }
    if (atomic && before.atomic) return false;
    if (before.group != unsigned(worker->number)) return true;
    if (past(region) > before.past) return false;
    bool same_simd = before.thread != MANY && before.thread / LANES == thread->index / LANES;
    return !(same_simd && past_simd(region) > before.past_simd);
}

// Report each kind once per tensor.
static bool once(const Region& region, unsigned kind) {
    unsigned slot = region.tensor >= 0 ? unsigned(region.tensor) : MOST_TENSORS;
    if (reported[slot][kind]) return false;
    ++findings;
    return reported[slot][kind] = true;
}

static unsigned long shown(const Region& region, unsigned long cell) {
    return region.tensor >= 0 ? cell : cell * region.item;
}

static void report_race(const Region& region, unsigned long cell, const void* pc, const char* how,
                      const unsigned* other, const unsigned* place) {
    if (!once(region, 0)) return;
    Thread then = {};
    memcpy(then.place, place, sizeof then.place);
    Thread* now = thread;
    thread = &then;
    report("race", pc, "%d\t%lu\t%s\t%s\t%u, %u, %u", region.tensor, shown(region, cell),
           region.name, how, other[0], other[1], other[2]);
    thread = now;
}

// An unordered write is a race only if it changes the value.
static void settle_pending() {
    unsigned count = pending_count;
    pending_count = 0;
    for (unsigned i = 0; i < count; ++i) {
        const Pending& p = pending[i];
        const char* now = p.region.memory + p.cell * p.region.item;
        if (memcmp(now, p.before, p.region.item) != 0)
            report_race(p.region, p.cell, p.pc, p.how, p.other, p.place);
    }
}

static void await_write(const Region& region, unsigned long cell, const void* pc, const char* how,
                        const unsigned* other) {
    if (pending_count == sizeof pending / sizeof *pending) return;
    Pending& p = pending[pending_count++];
    p.region = region;
    p.cell = cell;
    p.pc = pc;
    p.how = how;
    memcpy(p.other, other, sizeof p.other);
    memcpy(p.place, thread->place, sizeof p.place);
    memcpy(p.before, region.memory + cell * region.item, region.item);
}

static void note_read(const Region& region, unsigned long cell, const void* pc, bool atomic) {
    Cell& c = region.cells[cell];
    if (!c.written) {
        if (once(region, 1))
            report("uninitialised", pc, "%d\t%lu\t%s", region.tensor, shown(region, cell),
                   region.name);
    } else if (unordered(region, c.wrote, atomic)) {
        report_race(region, cell, pc, "reads, without synchronization, what is written by",
                    c.writer, thread->place);
    }
    Access now = access_now(region, atomic);
    bool joins = c.read.thread != NOBODY && c.read.thread != now.thread &&
                 c.read.group == now.group && c.read.past == now.past;
    if (joins) now.thread = MANY;
    else memcpy(c.first_reader, thread->place, sizeof c.first_reader);
    memcpy(c.last_reader, thread->place, sizeof c.last_reader);
    c.read = now;
}

static void note_write(const Region& region, unsigned long cell, const void* pc, bool atomic) {
    Cell& c = region.cells[cell];
    if (c.written && unordered(region, c.wrote, atomic)) {
        await_write(region, cell, pc, "writes, without synchronization, another value than",
                    c.writer);
    } else if (c.written && unordered(region, c.read, atomic)) {
        bool own = memcmp(c.last_reader, thread->place, sizeof c.last_reader) == 0;
        await_write(region, cell, pc, "writes, without synchronization, what is read by",
                    own ? c.first_reader : c.last_reader);
    }
    c.wrote = access_now(region, atomic);
    c.written = true;
    memcpy(c.writer, thread->place, sizeof c.writer);
}

static void note(const Region& region, const char* from, unsigned bytes, bool writes,
                 const void* pc, bool atomic) {
    unsigned long first = (unsigned long)(from - region.memory) / region.item;
    unsigned long last = (unsigned long)(from - region.memory + bytes - 1) / region.item;
    for (unsigned long cell = first; cell <= last && cell * region.item < region.bytes; ++cell)
        if (writes) note_write(region, cell, pc, atomic);
        else note_read(region, cell, pc, atomic);
}

// An access between tensors is attributed to the nearest tensor before it.
static void astray(const char* address, const void* pc) {
    int tensor = 0;
    for (unsigned i = 0; i < tensor_count; ++i)
        if (tensors[i].data <= address && tensors[i].data > tensors[tensor].data) tensor = int(i);
    const Tensor& t = tensors[tensor];
    report("astray", pc, "%d\t%ld", tensor, long(address - (t.data + t.count * t.item)));
    stop(FOUND);
}

static void seen(const volatile void* memory, unsigned bytes, bool writes, const void* pc,
                 bool atomic = false) {
    if (!thread || !worker) return;
    settle_pending();
    auto* address = const_cast<const char*>(static_cast<const volatile char*>(memory));
    if (worker->stacks.holds(address)) return;
    if (address >= low && address < high) {
        for (unsigned i = 0; i < result_count; ++i) {
            const Region& region = results[i];
            if (address >= region.memory && address < region.memory + region.bytes)
                return note(region, address, bytes, writes, pc, atomic);
        }
        int tensor = tensor_at(address);
        if (tensor < 0) astray(address, pc);
        if (writes) {
            report("input", pc, "%d\t%ld", tensor,
                   long(address - tensors[tensor].data) / tensors[tensor].item);
            stop(FOUND);
        }
        return;
    }
    for (unsigned i = 0; i < worker->shared_count; ++i) {
        const Shared& s = worker->shared[i];
        if (address < s.memory || address >= s.memory + s.bytes) continue;
        // One cell per byte: an array of structs is written field by field.
        static Region region;
        region = {s.memory, s.bytes, 1, -1, s.name, s.cells};
        return note(region, address, bytes, writes, pc, atomic);
    }
}

void atomic_access(const volatile void* memory, unsigned bytes, bool writes, bool reads) {
    const void* pc = __builtin_return_address(0);
    if (reads) seen(memory, bytes, false, pc, true);
    if (writes) seen(memory, bytes, true, pc, true);
}

void check_begin() {
    low = high = nullptr;
    for (unsigned i = 0; i < tensor_count; ++i) {
        Tensor& t = tensors[i];
        unsigned long bytes = (unsigned long)t.count * t.item;
        if (!low || t.data < low) low = t.data;
        if (t.data + bytes > high) high = t.data + bytes;
        if (!t.is_result) continue;
        Cell* cells = new Cell[size_t(t.count)];
        results[result_count++] = {t.data, bytes, t.item, int(i), "", cells};
    }
    low -= 256;
    high += 256;
}

void check_shared(Shared& shared) {
    settle_pending();
    if (!shared.cells) shared.cells = new Cell[shared.bytes];
    else for (unsigned i = 0; i < shared.bytes; ++i) shared.cells[i] = Cell();
}

void check_barrier(const Thread& first, const Thread& other) {
    settle_pending();
    if (first.line == other.line) return;
    thread = const_cast<Thread*>(&other);
    report("barrier", nullptr, "%d\t%d", first.line, other.line);
    stop(FOUND);
}

void check_early_return(const Thread& waiting, unsigned count) {
    thread = const_cast<Thread*>(&waiting);
    report("early", nullptr, "%d\t%u\t%u", waiting.line, count, group->threads);
    stop(FOUND);
}

void check_group_end() { settle_pending(); }

int check_end() {
    settle_pending();
    for (unsigned i = 0; i < result_count; ++i) {
        const Region& region = results[i];
        unsigned long count = region.bytes / region.item, missing = 0, first = 0;
        for (unsigned long c = count; c-- > 0;)
            if (!region.cells[c].written) first = c, ++missing;
        if (!missing) continue;
        ++findings;
        report("unwritten", nullptr, "%d\t%lu\t%lu\t%lu", region.tensor, first, missing, count);
    }
    return FINE;
}

}  // namespace coreai

#define COREAI_SEES(bytes)                                                                       \
    extern "C" void __tsan_read##bytes(void* p) {                                                \
        coreai::seen(p, bytes, false, __builtin_return_address(0));                              \
    }                                                                                            \
    extern "C" void __tsan_write##bytes(void* p) {                                               \
        coreai::seen(p, bytes, true, __builtin_return_address(0));                               \
    }                                                                                            \
    extern "C" void __tsan_unaligned_read##bytes(void* p) {                                      \
        coreai::seen(p, bytes, false, __builtin_return_address(0));                              \
    }                                                                                            \
    extern "C" void __tsan_unaligned_write##bytes(void* p) {                                     \
        coreai::seen(p, bytes, true, __builtin_return_address(0));                               \
    }
COREAI_SEES(1)
COREAI_SEES(2)
COREAI_SEES(4)
COREAI_SEES(8)
COREAI_SEES(16)
extern "C" void __tsan_read_range(void* p, unsigned long bytes) {
    coreai::seen(p, unsigned(bytes), false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* p, unsigned long bytes) {
    coreai::seen(p, unsigned(bytes), true, __builtin_return_address(0));
}
extern "C" void __tsan_volatile_read4(void* p) {
    coreai::seen(p, 4, false, __builtin_return_address(0));
}
extern "C" void __tsan_volatile_write4(void* p) {
    coreai::seen(p, 4, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}
