// Vectors with swizzles: `vec<T, N>` stores the elements, `v.zyx` is a view of it.
#pragma once
#include "coreai_scalars.h"

namespace metal {
template <class T, int N> struct vec;
}

namespace coreai {

// A view of selected elements at the address of the vector.
template <class T, int... I> struct swizzle {
    static constexpr int count = sizeof...(I);
    static constexpr int reach() {
        int last = 0;
        ((last = I > last ? I : last), ...);
        return last + 1;
    }
    T data[reach()];
    static constexpr int places[count] = {I...};
    constexpr T& operator[](int i) { return data[places[i]]; }
    constexpr const T& operator[](int i) const { return data[places[i]]; }
    constexpr operator metal::vec<T, count>() const { return metal::vec<T, count>(data[I]...); }
    swizzle& operator=(const swizzle& other) {
        return *this = static_cast<metal::vec<T, count>>(other);
    }
    swizzle& operator=(const metal::vec<T, count>& other) {
        for (int i = 0; i < count; ++i) data[places[i]] = other[i];
        return *this;
    }
};

template <class> struct vector_traits { static constexpr int count = 0; };
template <class T, int N> struct vector_traits<metal::vec<T, N>> {
    static constexpr int count = N;
    using element = T;
};
template <class T, int... I> struct vector_traits<swizzle<T, I...>> {
    static constexpr int count = sizeof...(I);
    using element = T;
};
template <class A> inline constexpr int count_of = vector_traits<metal::decay_t<A>>::count;
template <class A> concept vector = (count_of<A> > 0);
template <class... A> concept some_vector = (vector<A> || ...);
template <class A> using element_of = typename vector_traits<metal::decay_t<A>>::element;

template <class A> constexpr auto at(const A& a, int i) {
    if constexpr (vector<A>) return a[i];
    else return a;
}

// Common vector type of the operands: a scalar takes the element type of the vector.
template <class A, class... Rest> struct meeting {
    static constexpr auto pick() {
        if constexpr (vector<A>) return metal::vec<element_of<A>, count_of<A>>{};
        else return typename meeting<Rest...>::type{};
    }
    using type = decltype(pick());
};
template <class... A> using meeting_t = typename meeting<metal::decay_t<A>...>::type;

template <class F, class... A> constexpr auto map(F f, const A&... a) {
    using V = meeting_t<A...>;
    using E = element_of<V>;
    static_assert(((count_of<A> == 0 || count_of<A> == count_of<V>) && ...),
                  "vectors of different lengths");
    auto one = [&](int i) { return f(E(at(a, i))...); };
    metal::vec<metal::decay_t<decltype(one(0))>, count_of<V>> result{};
    for (int i = 0; i < count_of<V>; ++i) result[i] = one(i);
    return result;
}

#define COREAI_W2(T, a, A, b, B) coreai::swizzle<T, A, B> a##b;
#define COREAI_W3(T, a, A, b, B, c, C) coreai::swizzle<T, A, B, C> a##b##c;
#define COREAI_W4(T, a, A, b, B, c, C, d, D) coreai::swizzle<T, A, B, C, D> a##b##c##d;
#define COREAI_2C(T, a, A, b, B, c, C, x, y)                                                     \
    COREAI_W3(T, a, A, b, B, c, C)                                                               \
    COREAI_W4(T, a, A, b, B, c, C, x, 0) COREAI_W4(T, a, A, b, B, c, C, y, 1)
#define COREAI_2B(T, a, A, b, B, x, y)                                                           \
    COREAI_W2(T, a, A, b, B) COREAI_2C(T, a, A, b, B, x, 0, x, y)                                \
    COREAI_2C(T, a, A, b, B, y, 1, x, y)
#define COREAI_2A(T, a, A, x, y) COREAI_2B(T, a, A, x, 0, x, y) COREAI_2B(T, a, A, y, 1, x, y)
#define COREAI_SWIZZLES_2(T, x, y) COREAI_2A(T, x, 0, x, y) COREAI_2A(T, y, 1, x, y)
#define COREAI_3C(T, a, A, b, B, c, C, x, y, z)                                                  \
    COREAI_W3(T, a, A, b, B, c, C)                                                               \
    COREAI_W4(T, a, A, b, B, c, C, x, 0) COREAI_W4(T, a, A, b, B, c, C, y, 1)                    \
    COREAI_W4(T, a, A, b, B, c, C, z, 2)
#define COREAI_3B(T, a, A, b, B, x, y, z)                                                        \
    COREAI_W2(T, a, A, b, B) COREAI_3C(T, a, A, b, B, x, 0, x, y, z)                             \
    COREAI_3C(T, a, A, b, B, y, 1, x, y, z) COREAI_3C(T, a, A, b, B, z, 2, x, y, z)
#define COREAI_3A(T, a, A, x, y, z)                                                              \
    COREAI_3B(T, a, A, x, 0, x, y, z) COREAI_3B(T, a, A, y, 1, x, y, z)                          \
    COREAI_3B(T, a, A, z, 2, x, y, z)
#define COREAI_SWIZZLES_3(T, x, y, z)                                                            \
    COREAI_3A(T, x, 0, x, y, z) COREAI_3A(T, y, 1, x, y, z) COREAI_3A(T, z, 2, x, y, z)
#define COREAI_4C(T, a, A, b, B, c, C, x, y, z, w)                                               \
    COREAI_W3(T, a, A, b, B, c, C)                                                               \
    COREAI_W4(T, a, A, b, B, c, C, x, 0) COREAI_W4(T, a, A, b, B, c, C, y, 1)                    \
    COREAI_W4(T, a, A, b, B, c, C, z, 2) COREAI_W4(T, a, A, b, B, c, C, w, 3)
#define COREAI_4B(T, a, A, b, B, x, y, z, w)                                                     \
    COREAI_W2(T, a, A, b, B) COREAI_4C(T, a, A, b, B, x, 0, x, y, z, w)                          \
    COREAI_4C(T, a, A, b, B, y, 1, x, y, z, w) COREAI_4C(T, a, A, b, B, z, 2, x, y, z, w)        \
    COREAI_4C(T, a, A, b, B, w, 3, x, y, z, w)
#define COREAI_4A(T, a, A, x, y, z, w)                                                           \
    COREAI_4B(T, a, A, x, 0, x, y, z, w) COREAI_4B(T, a, A, y, 1, x, y, z, w)                    \
    COREAI_4B(T, a, A, z, 2, x, y, z, w) COREAI_4B(T, a, A, w, 3, x, y, z, w)
#define COREAI_SWIZZLES_4(T, x, y, z, w)                                                         \
    COREAI_4A(T, x, 0, x, y, z, w) COREAI_4A(T, y, 1, x, y, z, w)                                \
    COREAI_4A(T, z, 2, x, y, z, w) COREAI_4A(T, w, 3, x, y, z, w)

// Copy element by element: the swizzles share the storage and define another assignment.
#define COREAI_COPIES                                                                            \
    storage() = default;                                                                         \
    storage(const storage&) = default;                                                           \
    constexpr storage& operator=(const storage& other) {                                         \
        for (int i = 0; i < int(sizeof data / sizeof(T)); ++i) data[i] = other.data[i];          \
        return *this;                                                                            \
    }

template <class T, int N> struct storage;
template <class T> struct storage<T, 2> {
    COREAI_COPIES
    union alignas(sizeof(T) * 2) {
        T data[2];
        struct { T x, y; };
        struct { T r, g; };
        COREAI_SWIZZLES_2(T, x, y)
        COREAI_SWIZZLES_2(T, r, g)
    };
};
template <class T> struct storage<T, 3> {
    COREAI_COPIES
    union alignas(sizeof(T) * 4) {
        T data[3];
        struct { T x, y, z; };
        struct { T r, g, b; };
        COREAI_SWIZZLES_3(T, x, y, z)
        COREAI_SWIZZLES_3(T, r, g, b)
    };
};
template <class T> struct storage<T, 4> {
    COREAI_COPIES
    union alignas(sizeof(T) * 4) {
        T data[4];
        struct { T x, y, z, w; };
        struct { T r, g, b, a; };
        COREAI_SWIZZLES_4(T, x, y, z, w)
        COREAI_SWIZZLES_4(T, r, g, b, a)
    };
};

}  // namespace coreai

namespace metal {

template <class T, int N> struct vec : coreai::storage<T, N> {
    static_assert(N >= 2 && N <= 4, "a vector holds two, three or four elements");
    using coreai::storage<T, N>::data;
    vec() = default;
    template <class S> requires coreai::number<S>
    constexpr vec(S value) { for (int i = 0; i < N; ++i) data[i] = T(value); }
    template <class A> requires(coreai::count_of<A> == N && is_same_v<coreai::element_of<A>, T>)
    constexpr vec(const A& other) { for (int i = 0; i < N; ++i) data[i] = other[i]; }
    template <class A> requires(coreai::count_of<A> == N && !is_same_v<coreai::element_of<A>, T>)
    explicit constexpr vec(const A& other) { for (int i = 0; i < N; ++i) data[i] = T(other[i]); }
    template <class A, class B, class... Rest>
    constexpr vec(const A& a, const B& b, const Rest&... rest) {
        constexpr int given = width<A>() + width<B>() + (0 + ... + width<Rest>());
        static_assert(given == N, "as many values as the vector has elements");
        int place = 0;
        put(place, a);
        put(place, b);
        (put(place, rest), ...);
    }
    constexpr T& operator[](int i) { return data[i]; }
    constexpr const T& operator[](int i) const { return data[i]; }

  private:
    template <class A> static constexpr int width() {
        return coreai::vector<A> ? coreai::count_of<A> : 1;
    }
    template <class A> constexpr void put(int& place, const A& a) {
        if constexpr (coreai::vector<A>)
            for (int i = 0; i < coreai::count_of<A>; ++i) data[place++] = T(a[i]);
        else data[place++] = T(a);
    }
};

#define COREAI_VECTOR_OP(op)                                                                     \
    template <class A, class B> requires coreai::some_vector<A, B>                              \
    constexpr auto operator op(const A& a, const B& b) {                                         \
        using E = coreai::element_of<coreai::meeting_t<A, B>>;                                   \
        return coreai::map([](E x, E y) { return E(x op y); }, a, b);                            \
    }                                                                                            \
    template <class A, class B> requires coreai::vector<A>                                      \
    constexpr A& operator op##=(A& a, const B& b) {                             \
        a = coreai::meeting_t<A>(a op b);                                                        \
        return a;                                                                                \
    }
#define COREAI_VECTOR_TEST(op)                                                                   \
    template <class A, class B> requires coreai::some_vector<A, B>                              \
    constexpr auto operator op(const A& a, const B& b) {                                         \
        using E = coreai::element_of<coreai::meeting_t<A, B>>;                                   \
        return coreai::map([](E x, E y) { return bool(x op y); }, a, b);                         \
    }
COREAI_VECTOR_OP(+)
COREAI_VECTOR_OP(-)
COREAI_VECTOR_OP(*)
COREAI_VECTOR_OP(/)
COREAI_VECTOR_OP(%)
COREAI_VECTOR_OP(&)
COREAI_VECTOR_OP(|)
COREAI_VECTOR_OP(^)
COREAI_VECTOR_OP(<<)
COREAI_VECTOR_OP(>>)
COREAI_VECTOR_TEST(==)
COREAI_VECTOR_TEST(!=)
COREAI_VECTOR_TEST(<)
COREAI_VECTOR_TEST(>)
COREAI_VECTOR_TEST(<=)
COREAI_VECTOR_TEST(>=)
COREAI_VECTOR_TEST(&&)
COREAI_VECTOR_TEST(||)
#define COREAI_VECTOR_UNARY(op)                                                                  \
    template <class A> requires coreai::vector<A> constexpr auto operator op(const A& a) {      \
        using E = coreai::element_of<A>;                                                         \
        return coreai::map([](E x) { return E(op x); }, a);                                      \
    }
COREAI_VECTOR_UNARY(-)
COREAI_VECTOR_UNARY(~)
COREAI_VECTOR_UNARY(+)
template <class A> requires coreai::vector<A> constexpr auto operator!(const A& a) {
    using E = coreai::element_of<A>;
    return coreai::map([](E x) { return !x; }, a);
}
template <class A> requires coreai::vector<A> A& operator++(A& a) { return a += 1; }
template <class A> requires coreai::vector<A> A& operator--(A& a) { return a -= 1; }

// Vectors without padding, as they are stored in buffers.
template <class T, int N> struct packed_vec {
    T data[N];
    packed_vec() = default;
    template <class A> requires(coreai::count_of<A> == N)
    packed_vec(const A& other) { for (int i = 0; i < N; ++i) data[i] = T(other[i]); }
    operator vec<T, N>() const {
        vec<T, N> v;
        for (int i = 0; i < N; ++i) v[i] = data[i];
        return v;
    }
    T& operator[](int i) { return data[i]; }
    const T& operator[](int i) const { return data[i]; }
};

template <class T, int C, int R> struct matrix {
    vec<T, R> columns[C];
    matrix() = default;
    explicit constexpr matrix(T diagonal) {
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r) columns[c][r] = c == r ? diagonal : T(0);
    }
    template <class... V> requires(sizeof...(V) == C && C > 1)
    constexpr matrix(const V&... v) : columns{vec<T, R>(v)...} {}
    constexpr vec<T, R>& operator[](int c) { return columns[c]; }
    constexpr const vec<T, R>& operator[](int c) const { return columns[c]; }
};
template <class T, int C, int R>
constexpr vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& v) {
    vec<T, R> sum(T(0));
    for (int c = 0; c < C; ++c) sum += m[c] * v[c];
    return sum;
}
template <class T, int C, int R>
constexpr vec<T, C> operator*(const vec<T, R>& v, const matrix<T, C, R>& m) {
    vec<T, C> result(T(0));
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) result[c] += v[r] * m[c][r];
    return result;
}
template <class T, int C, int R, int K>
constexpr matrix<T, K, R> operator*(const matrix<T, C, R>& a, const matrix<T, K, C>& b) {
    matrix<T, K, R> result(T(0));
    for (int k = 0; k < K; ++k) result[k] = a * b[k];
    return result;
}
template <class T, int C, int R>
constexpr matrix<T, C, R> operator+(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {
    matrix<T, C, R> result(T(0));
    for (int c = 0; c < C; ++c) result[c] = a[c] + b[c];
    return result;
}
template <class T, int C, int R>
constexpr matrix<T, C, R> operator*(const matrix<T, C, R>& a, T s) {
    matrix<T, C, R> result(T(0));
    for (int c = 0; c < C; ++c) result[c] = a[c] * s;
    return result;
}
template <class T, int C, int R> constexpr matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
    matrix<T, R, C> result(T(0));
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) result[r][c] = m[c][r];
    return result;
}

}  // namespace metal

#define COREAI_VECTOR_NAMES(T)                                                                   \
    using T##2 = metal::vec<T, 2>;                                                               \
    using T##3 = metal::vec<T, 3>;                                                               \
    using T##4 = metal::vec<T, 4>;                                                               \
    using packed_##T##2 = metal::packed_vec<T, 2>;                                               \
    using packed_##T##3 = metal::packed_vec<T, 3>;                                               \
    using packed_##T##4 = metal::packed_vec<T, 4>;                                               \
    namespace metal {                                                                            \
    using ::T##2, ::T##3, ::T##4, ::packed_##T##2, ::packed_##T##3, ::packed_##T##4;             \
    }
COREAI_VECTOR_NAMES(bool)
COREAI_VECTOR_NAMES(char)
COREAI_VECTOR_NAMES(uchar)
COREAI_VECTOR_NAMES(short)
COREAI_VECTOR_NAMES(ushort)
COREAI_VECTOR_NAMES(int)
COREAI_VECTOR_NAMES(uint)
COREAI_VECTOR_NAMES(long)
COREAI_VECTOR_NAMES(ulong)
COREAI_VECTOR_NAMES(half)
COREAI_VECTOR_NAMES(bfloat)
COREAI_VECTOR_NAMES(float)
#define COREAI_MATRIX_NAMES(T)                                                                   \
    using T##2x2 = metal::matrix<T, 2, 2>;                                                       \
    using T##2x3 = metal::matrix<T, 2, 3>;                                                       \
    using T##2x4 = metal::matrix<T, 2, 4>;                                                       \
    using T##3x2 = metal::matrix<T, 3, 2>;                                                       \
    using T##3x3 = metal::matrix<T, 3, 3>;                                                       \
    using T##3x4 = metal::matrix<T, 3, 4>;                                                       \
    using T##4x2 = metal::matrix<T, 4, 2>;                                                       \
    using T##4x3 = metal::matrix<T, 4, 3>;                                                       \
    using T##4x4 = metal::matrix<T, 4, 4>;
COREAI_MATRIX_NAMES(float)
COREAI_MATRIX_NAMES(half)
