// Atomic variables of device and threadgroup memory; each order is at least as strict as requested.
#pragma once
#include "coreai_threads.h"

namespace metal {

enum memory_order {
    memory_order_relaxed,
    memory_order_acquire,
    memory_order_release,
    memory_order_acq_rel,
    memory_order_seq_cst,
};

template <class T> struct atomic {
    T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

}  // namespace metal

namespace coreai {

// Not instrumented: the checks receive the access as one unit.
#define COREAI_ATOMIC __attribute__((no_sanitize("thread"), noinline))
template <class T> using bits_t =
    metal::conditional_t<sizeof(T) == 1, uchar, metal::conditional_t<sizeof(T) == 4, uint, ulong>>;

template <class T, class F>
COREAI_ATOMIC T update(volatile metal::atomic<T>* object, F f) {
    atomic_access(object, sizeof(T), true, true);
    auto* place = reinterpret_cast<volatile bits_t<T>*>(object);
    bits_t<T> old = __atomic_load_n(place, __ATOMIC_SEQ_CST), wanted;
    do {
        wanted = __builtin_bit_cast(bits_t<T>, T(f(__builtin_bit_cast(T, old))));
    } while (!__atomic_compare_exchange_n(place, &old, wanted, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    return __builtin_bit_cast(T, old);
}
template <class T> COREAI_ATOMIC T load(const volatile metal::atomic<T>* object) {
    atomic_access(object, sizeof(T), false, true);
    auto* place = reinterpret_cast<const volatile bits_t<T>*>(object);
    return __builtin_bit_cast(T, __atomic_load_n(place, __ATOMIC_SEQ_CST));
}
template <class T> COREAI_ATOMIC void store(volatile metal::atomic<T>* object, T value) {
    atomic_access(object, sizeof(T), true, false);
    auto* place = reinterpret_cast<volatile bits_t<T>*>(object);
    __atomic_store_n(place, __builtin_bit_cast(bits_t<T>, value), __ATOMIC_SEQ_CST);
}
template <class T>
COREAI_ATOMIC bool exchange_if(volatile metal::atomic<T>* object, T* expected, T desired) {
    atomic_access(object, sizeof(T), true, true);
    auto* place = reinterpret_cast<volatile bits_t<T>*>(object);
    bits_t<T> old = __builtin_bit_cast(bits_t<T>, *expected);
    bool done = __atomic_compare_exchange_n(place, &old, __builtin_bit_cast(bits_t<T>, desired),
                                            false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    *expected = __builtin_bit_cast(T, old);
    return done;
}

}  // namespace coreai

namespace metal {

template <class T, class V>
void atomic_store_explicit(volatile atomic<T>* object, V value, memory_order) {
    coreai::store(object, T(value));
}
template <class T> T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
    return coreai::load(object);
}
template <class T, class V>
bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected, V desired,
                                           memory_order, memory_order) {
    return coreai::exchange_if(object, expected, T(desired));
}
#define COREAI_FETCH(name, expression)                                                           \
    template <class T, class V>                                                                  \
    T name(volatile atomic<T>* object, V operand, memory_order) {                                \
        T b = T(operand);                                                                        \
        return coreai::update(object, [b](T a) { return T(expression); });                       \
    }
COREAI_FETCH(atomic_exchange_explicit, ((void)a, b))
COREAI_FETCH(atomic_fetch_add_explicit, a + b)
COREAI_FETCH(atomic_fetch_sub_explicit, a - b)
COREAI_FETCH(atomic_fetch_and_explicit, a & b)
COREAI_FETCH(atomic_fetch_or_explicit, a | b)
COREAI_FETCH(atomic_fetch_xor_explicit, a ^ b)
COREAI_FETCH(atomic_fetch_max_explicit, max(a, b))
COREAI_FETCH(atomic_fetch_min_explicit, min(a, b))
COREAI_FETCH(atomic_max_explicit, max(a, b))
COREAI_FETCH(atomic_min_explicit, min(a, b))
#undef COREAI_FETCH
inline void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

}  // namespace metal
