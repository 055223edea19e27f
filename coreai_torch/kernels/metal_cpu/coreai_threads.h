// Thread attributes, barriers, and simdgroup operations.
#pragma once
#include "coreai_math.h"
#include "coreai_runtime.h"

namespace coreai {

template <class T> constexpr T spread(unsigned x, unsigned y, unsigned z) {
    if constexpr (count_of<T> == 0) return T(x);
    else if constexpr (count_of<T> == 2) return T(x, y);
    else return T(x, y, z);
}
template <class T> T spread(const unsigned (&v)[3]) { return spread<T>(v[0], v[1], v[2]); }
constexpr unsigned rounds(unsigned threads, unsigned width) { return (threads + width - 1) / width; }
inline unsigned full() { return launch.group[0] * launch.group[1] * launch.group[2]; }
inline unsigned lane() { return thread->index % LANES; }

namespace attributes {
#define COREAI_PLACE(name, value) template <class T> T name() { return spread<T>(value); }
#define COREAI_COUNT(name, value) template <class T> T name() { return T(value); }
COREAI_PLACE(thread_position_in_grid, thread->place)
COREAI_PLACE(thread_position_in_threadgroup, thread->local)
COREAI_PLACE(threadgroup_position_in_grid, group->place)
COREAI_PLACE(threads_per_grid, launch.grid)
COREAI_PLACE(grid_size, launch.grid)
COREAI_PLACE(threads_per_threadgroup, group->size)
COREAI_PLACE(dispatch_threads_per_threadgroup, launch.group)
COREAI_PLACE(threadgroups_per_grid, launch.groups)
template <class T> T grid_origin() { return spread<T>(0, 0, 0); }
COREAI_COUNT(thread_index_in_threadgroup, thread->index)
COREAI_COUNT(thread_index_in_simdgroup, lane())
COREAI_COUNT(simdgroup_index_in_threadgroup, thread->index / LANES)
COREAI_COUNT(thread_index_in_quadgroup, thread->index % 4)
COREAI_COUNT(quadgroup_index_in_threadgroup, thread->index / 4)
COREAI_COUNT(threads_per_simdgroup, LANES)
COREAI_COUNT(thread_execution_width, LANES)
COREAI_COUNT(simdgroups_per_threadgroup, rounds(group->threads, LANES))
COREAI_COUNT(dispatch_simdgroups_per_threadgroup, rounds(full(), LANES))
COREAI_COUNT(quadgroups_per_threadgroup, rounds(group->threads, 4))
COREAI_COUNT(dispatch_quadgroups_per_threadgroup, rounds(full(), 4))
#undef COREAI_PLACE
#undef COREAI_COUNT
}  // namespace attributes

// The values that the lanes at one operation publish; they are valid until the next operation.
template <class T> struct Gathered {
    const Exchange& all;
    explicit Gathered(const T& mine, int line) : all(exchange(&mine, sizeof mine, line)) {
        static_assert(sizeof(T) <= MOST_BYTES, "a value too large for lanes to exchange");
    }
    bool has(unsigned l) const { return l < LANES && (all.mask >> l & 1); }
    T operator[](unsigned l) const {
        T value;
        __builtin_memcpy(static_cast<void*>(&value), all.values[l], sizeof value);
        return value;
    }
    // Reduce `width` lanes from `first` on, in order.
    template <class F> T fold(unsigned first, unsigned width, F f) const {
        T total{};
        bool begun = false;
        for (unsigned l = first; l < first + width; ++l) {
            if (!has(l)) continue;
            total = begun ? T(f(total, (*this)[l])) : (*this)[l];
            begun = true;
        }
        return total;
    }
};

template <class T> T lane_or(const Gathered<T>& g, long l, unsigned first, unsigned width, T own) {
    bool within = l >= long(first) && l < long(first + width);
    return within && g.has(unsigned(l)) ? g[unsigned(l)] : own;
}

}  // namespace coreai

namespace metal {

enum class mem_flags : unsigned {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return mem_flags(unsigned(a) | unsigned(b));
}
enum thread_scope {
    thread_scope_thread,
    thread_scope_simdgroup,
    thread_scope_threadgroup,
    thread_scope_device,
};
inline void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
    coreai::barrier(unsigned(flags), line);
}
inline void threadgroup_barrier(mem_flags flags, thread_scope, int line = __builtin_LINE()) {
    coreai::barrier(unsigned(flags), line);
}
inline void simdgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
    coreai::simd_barrier(unsigned(flags), line);
}

struct simd_vote {
    using vote_t = ulong;
    ulong bits = 0, active = 0;
    simd_vote() = default;
    explicit constexpr simd_vote(vote_t v) : bits(v), active(~0ul) {}
    constexpr simd_vote(vote_t v, vote_t a) : bits(v), active(a) {}
    explicit constexpr operator vote_t() const { return bits; }
    constexpr bool all() const { return bits == active; }
    constexpr bool any() const { return bits != 0; }
};
using quad_vote = simd_vote;

#define COREAI_FOLDS(group, first, width)                                                        \
    COREAI_FOLD(group##_sum, a + b, first, width)                                                \
    COREAI_FOLD(group##_product, a * b, first, width)                                            \
    COREAI_FOLD(group##_max, max(a, b), first, width)                                            \
    COREAI_FOLD(group##_min, min(a, b), first, width)                                            \
    COREAI_FOLD(group##_and, a & b, first, width)                                                \
    COREAI_FOLD(group##_or, a | b, first, width)                                                 \
    COREAI_FOLD(group##_xor, a ^ b, first, width)
#define COREAI_FOLD(name, expression, first, width)                                              \
    template <class T> T name(T value, int line = __builtin_LINE()) {                            \
        return coreai::Gathered<T>(value, line).fold(first, width,                               \
                                                     [](T a, T b) { return expression; });       \
    }
#define COREAI_SHUFFLES(group, first, width)                                                     \
    template <class T> T group##_shuffle(T v, ushort l, int line = __builtin_LINE()) {           \
        return coreai::lane_or(coreai::Gathered<T>(v, line), long(first) + l, first, width, v);  \
    }                                                                                            \
    template <class T> T group##_broadcast(T v, ushort l, int line = __builtin_LINE()) {         \
        return coreai::lane_or(coreai::Gathered<T>(v, line), long(first) + l, first, width, v);  \
    }                                                                                            \
    template <class T> T group##_shuffle_up(T v, ushort d, int line = __builtin_LINE()) {        \
        long from = long(coreai::lane()) - d;                                                    \
        return coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);             \
    }                                                                                            \
    template <class T> T group##_shuffle_down(T v, ushort d, int line = __builtin_LINE()) {      \
        long from = long(coreai::lane()) + d;                                                    \
        return coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);             \
    }                                                                                            \
    template <class T> T group##_shuffle_xor(T v, ushort m, int line = __builtin_LINE()) {       \
        long from = long(coreai::lane() ^ m);                                                    \
        return coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);             \
    }                                                                                            \
    template <class T> T group##_shuffle_rotate_up(T v, ushort d, int line = __builtin_LINE()) { \
        long from = first + (coreai::lane() - first + width - d % width) % width;                \
        return coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);             \
    }                                                                                            \
    template <class T> T group##_shuffle_rotate_down(T v, ushort d, int line = __builtin_LINE()) { \
        long from = first + (coreai::lane() - first + d) % width;                                \
        return coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);             \
    }                                                                                            \
    template <class T>                                                                           \
    T group##_shuffle_and_fill_up(T v, T fill, ushort d, int line = __builtin_LINE()) {          \
        long from = long(coreai::lane()) - d;                                                    \
        T moved = coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);          \
        from += from < long(first) ? width : 0;                                                  \
        T filled = coreai::lane_or(coreai::Gathered<T>(fill, line), from, first, width, fill);   \
        return long(coreai::lane()) - d >= long(first) ? moved : filled;                         \
    }                                                                                            \
    template <class T>                                                                           \
    T group##_shuffle_and_fill_down(T v, T fill, ushort d, int line = __builtin_LINE()) {        \
        long from = long(coreai::lane()) + d, end = long(first + width);                         \
        T moved = coreai::lane_or(coreai::Gathered<T>(v, line), from, first, width, v);          \
        from -= from >= end ? width : 0;                                                         \
        T filled = coreai::lane_or(coreai::Gathered<T>(fill, line), from, first, width, fill);   \
        return long(coreai::lane()) + d < end ? moved : filled;                                  \
    }
#define COREAI_VOTES(group, first, width)                                                        \
    inline simd_vote group##_ballot(bool vote, int line = __builtin_LINE()) {                    \
        coreai::Gathered<bool> votes(vote, line);                                                \
        ulong bits = 0, active = 0;                                                              \
        for (unsigned l = first; l < first + width; ++l)                                         \
            if (votes.has(l)) active |= 1ul << (l - first), bits |= ulong(votes[l]) << (l - first); \
        return simd_vote(bits, active);                                                          \
    }                                                                                            \
    inline bool group##_all(bool vote, int line = __builtin_LINE()) {                            \
        return group##_ballot(vote, line).all();                                                 \
    }                                                                                            \
    inline bool group##_any(bool vote, int line = __builtin_LINE()) {                            \
        return group##_ballot(vote, line).any();                                                 \
    }                                                                                            \
    inline simd_vote group##_active_threads_mask(int line = __builtin_LINE()) {                  \
        return simd_vote(group##_ballot(true, line).active, ~0ul);                               \
    }                                                                                            \
    inline bool group##_is_first(int line = __builtin_LINE()) {                                  \
        return unsigned(__builtin_ctzl(group##_ballot(true, line).active)) ==                    \
               coreai::lane() - first;                                                           \
    }                                                                                            \
    template <class T> T group##_broadcast_first(T v, int line = __builtin_LINE()) {             \
        coreai::Gathered<T> values(v, line);                                                     \
        for (unsigned l = first; l < first + width; ++l)                                         \
            if (values.has(l)) return values[l];                                                 \
        return v;                                                                                \
    }
#define COREAI_PREFIX(name, start, expression, inclusive)                                        \
    template <class T> T name(T value, int line = __builtin_LINE()) {                            \
        coreai::Gathered<T> values(value, line);                                                 \
        T total = T(start);                                                                      \
        for (unsigned l = 0; l < coreai::lane() + inclusive; ++l) {                              \
            if (!values.has(l)) continue;                                                        \
            T a = total, b = values[l];                                                          \
            total = T(expression);                                                               \
        }                                                                                        \
        return total;                                                                            \
    }
COREAI_PREFIX(simd_prefix_inclusive_sum, 0, a + b, 1)
COREAI_PREFIX(simd_prefix_exclusive_sum, 0, a + b, 0)
COREAI_PREFIX(simd_prefix_inclusive_product, 1, a * b, 1)
COREAI_PREFIX(simd_prefix_exclusive_product, 1, a * b, 0)
COREAI_FOLDS(simd, 0u, coreai::LANES)
COREAI_FOLDS(quad, (coreai::lane() & ~3u), 4u)
COREAI_SHUFFLES(simd, 0u, coreai::LANES)
COREAI_SHUFFLES(quad, (coreai::lane() & ~3u), 4u)
COREAI_VOTES(simd, 0u, coreai::LANES)
COREAI_VOTES(quad, (coreai::lane() & ~3u), 4u)
inline bool simd_is_helper_thread() { return false; }
#undef COREAI_FOLDS
#undef COREAI_FOLD
#undef COREAI_SHUFFLES
#undef COREAI_VOTES
#undef COREAI_PREFIX

}  // namespace metal
