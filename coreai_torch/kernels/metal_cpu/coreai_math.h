// The common, math, integer, relational and geometric functions.
#pragma once
#include "coreai_vectors.h"

namespace coreai {
template <class T> concept narrow_float = metal::is_same_v<T, half> || metal::is_same_v<T, bfloat>;
template <class T> concept integer = metal::is_integral_v<T> && !metal::is_same_v<T, bool>;
template <class T> concept scalar = number<metal::decay_t<T>>;
template <class... T> concept scalars = (scalar<T> && ...);
template <class A, class... B> struct common_of { using type = A; };
template <class A, class B, class... C>
struct common_of<A, B, C...> : common_of<
    metal::conditional_t<metal::is_same_v<A, B>, A, common_t<A, B>>, C...> {};
template <class T> constexpr T hermite(T t) { return t * t * (T(3) - T(2) * t); }
template <class... A> using common_of_t = typename common_of<metal::decay_t<A>...>::type;
}  // namespace coreai

namespace metal {

// One argument: half and bfloat are computed as float and rounded once.
#define COREAI_MATH_1(name, expression)                                                          \
    inline float name(float x) { return expression; }                                            \
    template <coreai::narrow_float T> inline T name(T x) { return T(name(float(x))); }          \
    template <coreai::vector A> inline auto name(const A& a) {                                   \
        return coreai::map([](coreai::element_of<A> x) { return name(x); }, a);                  \
    }
#define COREAI_MATH_2(name, expression)                                                          \
    inline float name(float x, float y) { return expression; }                                   \
    template <class A, class B> requires(coreai::scalars<A, B> &&                               \
        is_floating_point_v<coreai::common_of_t<A, B>>)                                          \
    inline auto name(const A& x, const B& y) {                                                   \
        return coreai::common_of_t<A, B>(name(float(x), float(y)));                              \
    }                                                                                            \
    template <class A, class B> requires coreai::some_vector<A, B>                              \
    inline auto name(const A& a, const B& b) {                                                   \
        using E = coreai::element_of<coreai::meeting_t<A, B>>;                                   \
        return coreai::map([](E x, E y) { return name(x, y); }, a, b);                           \
    }

COREAI_MATH_1(acos, __builtin_acosf(x))
COREAI_MATH_1(acosh, __builtin_acoshf(x))
COREAI_MATH_1(asin, __builtin_asinf(x))
COREAI_MATH_1(asinh, __builtin_asinhf(x))
COREAI_MATH_1(atan, __builtin_atanf(x))
COREAI_MATH_1(atanh, __builtin_atanhf(x))
COREAI_MATH_1(ceil, __builtin_ceilf(x))
COREAI_MATH_1(cos, __builtin_cosf(x))
COREAI_MATH_1(cosh, __builtin_coshf(x))
COREAI_MATH_1(cospi, __builtin_cosf(M_PI_F * __builtin_fmodf(x, 2.0f)))
COREAI_MATH_1(exp, __builtin_expf(x))
COREAI_MATH_1(exp10, __builtin_exp10f(x))
COREAI_MATH_1(exp2, __builtin_exp2f(x))
COREAI_MATH_1(fabs, __builtin_fabsf(x))
COREAI_MATH_1(floor, __builtin_floorf(x))
COREAI_MATH_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
COREAI_MATH_1(log, __builtin_logf(x))
COREAI_MATH_1(log10, __builtin_log10f(x))
COREAI_MATH_1(log2, __builtin_log2f(x))
COREAI_MATH_1(rint, __builtin_rintf(x))
COREAI_MATH_1(round, __builtin_roundf(x))
COREAI_MATH_1(rsqrt, 1.0f / __builtin_sqrtf(x))
COREAI_MATH_1(saturate, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
COREAI_MATH_1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
COREAI_MATH_1(sin, __builtin_sinf(x))
COREAI_MATH_1(sinh, __builtin_sinhf(x))
COREAI_MATH_1(sinpi, __builtin_sinf(M_PI_F * __builtin_fmodf(x, 2.0f)))
COREAI_MATH_1(sqrt, __builtin_sqrtf(x))
COREAI_MATH_1(tan, __builtin_tanf(x))
COREAI_MATH_1(tanh, __builtin_tanhf(x))
COREAI_MATH_1(tanpi, __builtin_tanf(M_PI_F * __builtin_fmodf(x, 1.0f)))
COREAI_MATH_1(trunc, __builtin_truncf(x))
COREAI_MATH_2(atan2, __builtin_atan2f(x, y))
COREAI_MATH_2(copysign, __builtin_copysignf(x, y))
COREAI_MATH_2(divide, x / y)
COREAI_MATH_2(fdim, __builtin_fdimf(x, y))
COREAI_MATH_2(fmax, __builtin_fmaxf(x, y))
COREAI_MATH_2(fmin, __builtin_fminf(x, y))
COREAI_MATH_2(fmod, __builtin_fmodf(x, y))
COREAI_MATH_2(nextafter, __builtin_nextafterf(x, y))
COREAI_MATH_2(pow, __builtin_powf(x, y))
COREAI_MATH_2(powr, __builtin_powf(x, y))
COREAI_MATH_2(step, y < x ? 0.0f : 1.0f)
#undef COREAI_MATH_1
#undef COREAI_MATH_2

// Functions of every scalar type: arguments of different types are promoted to the wider one.
#define COREAI_ANY_2(name, expression)                                                           \
    template <class A, class B> requires coreai::scalars<A, B>                                  \
    constexpr auto name(const A& a, const B& b) {                                                \
        using T = coreai::common_of_t<A, B>;                                                     \
        T x = T(a), y = T(b);                                                                    \
        return T(expression);                                                                    \
    }                                                                                            \
    template <class A, class B> requires coreai::some_vector<A, B>                              \
    constexpr auto name(const A& a, const B& b) {                                                \
        using E = coreai::element_of<coreai::meeting_t<A, B>>;                                   \
        return coreai::map([](E x, E y) { return name(x, y); }, a, b);                           \
    }
#define COREAI_ANY_3(name, expression)                                                           \
    template <class A, class B, class C> requires coreai::scalars<A, B, C>                      \
    constexpr auto name(const A& a, const B& b, const C& c) {                                    \
        using T = coreai::common_of_t<A, B, C>;                                                  \
        T x = T(a), y = T(b), z = T(c);                                                          \
        return T(expression);                                                                    \
    }                                                                                            \
    template <class A, class B, class C> requires coreai::some_vector<A, B, C>                  \
    constexpr auto name(const A& a, const B& b, const C& c) {                                    \
        using E = coreai::element_of<coreai::meeting_t<A, B, C>>;                                \
        return coreai::map([](E x, E y, E z) { return name(x, y, z); }, a, b, c);                \
    }
COREAI_ANY_2(max, x < y ? y : x)
COREAI_ANY_2(min, y < x ? y : x)
COREAI_ANY_3(clamp, x < y ? y : z < x ? z : x)
COREAI_ANY_3(max3, max(x, max(y, z)))
COREAI_ANY_3(min3, min(x, min(y, z)))
COREAI_ANY_3(fmax3, fmax(x, fmax(y, z)))
COREAI_ANY_3(fmin3, fmin(x, fmin(y, z)))
COREAI_ANY_3(median3, max(min(x, y), min(max(x, y), z)))
COREAI_ANY_3(mix, x + (y - x) * z)
COREAI_ANY_3(smoothstep, coreai::hermite(saturate((z - x) / (y - x))))
#undef COREAI_ANY_2
}  // namespace metal

namespace coreai {
inline float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
template <narrow_float T> inline T fused(T x, T y, T z) {
    return T(float(__builtin_fma(double(float(x)), double(float(y)), double(float(z)))));
}
}  // namespace coreai

namespace metal {
COREAI_ANY_3(fma, coreai::fused(x, y, z))
COREAI_ANY_3(mad, x * y + z)
#undef COREAI_ANY_3

template <class T> requires coreai::scalar<T> constexpr T abs(T x) {
    if constexpr (is_floating_point_v<T>) return T(__builtin_fabsf(float(x)));
    else return x < T(0) ? T(-x) : x;
}
template <coreai::vector A> constexpr auto abs(const A& a) {
    return coreai::map([](coreai::element_of<A> x) { return abs(x); }, a);
}

#define COREAI_TEST_1(name, expression)                                                          \
    template <class T> requires(is_floating_point_v<T>) constexpr bool name(T value) {          \
        float x = float(value);                                                                  \
        return expression;                                                                       \
    }                                                                                            \
    template <coreai::vector A> constexpr auto name(const A& a) {                                \
        return coreai::map([](coreai::element_of<A> x) { return name(x); }, a);                  \
    }
COREAI_TEST_1(isnan, x != x)
COREAI_TEST_1(isinf, __builtin_isinf(x) != 0)
COREAI_TEST_1(isfinite, __builtin_isfinite(x) != 0)
COREAI_TEST_1(isnormal, __builtin_isnormal(x) != 0)
COREAI_TEST_1(signbit, __builtin_signbit(x) != 0)
#undef COREAI_TEST_1

// select(a, b, c) is c ? b : a, element by element.
template <class A, class B> requires coreai::scalars<A, B>
constexpr auto select(A a, B b, bool c) {
    using T = coreai::common_of_t<A, B>;
    return c ? T(b) : T(a);
}
template <class A, class B, class C> requires coreai::some_vector<A, B>
constexpr auto select(const A& a, const B& b, const C& c) {
    coreai::meeting_t<A, B> result{};
    for (int i = 0; i < coreai::count_of<decltype(result)>; ++i)
        result[i] = coreai::at(c, i) ? coreai::at(b, i) : coreai::at(a, i);
    return result;
}
constexpr bool all(bool x) { return x; }
constexpr bool any(bool x) { return x; }
template <coreai::vector A> constexpr bool all(const A& a) {
    for (int i = 0; i < coreai::count_of<A>; ++i)
        if (!a[i]) return false;
    return true;
}
template <coreai::vector A> constexpr bool any(const A& a) {
    for (int i = 0; i < coreai::count_of<A>; ++i)
        if (a[i]) return true;
    return false;
}

template <class A, class B> requires(coreai::vector<A> && coreai::vector<B>)
constexpr auto dot(const A& a, const B& b) {
    static_assert(coreai::count_of<A> == coreai::count_of<B>, "vectors of different lengths");
    using E = coreai::element_of<A>;
    E sum = E(a[0] * b[0]);
    for (int i = 1; i < coreai::count_of<A>; ++i) sum = E(sum + E(a[i] * b[i]));
    return sum;
}
template <class A, class B> constexpr auto cross(const A& a, const B& b) {
    return vec<coreai::element_of<A>, 3>(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
                                         a[0] * b[1] - a[1] * b[0]);
}
template <coreai::vector A> inline auto length_squared(const A& a) { return dot(a, a); }
template <coreai::vector A> inline auto length(const A& a) { return sqrt(dot(a, a)); }
template <coreai::vector A> inline auto normalize(const A& a) { return a * rsqrt(dot(a, a)); }
template <class A, class B> inline auto distance(const A& a, const B& b) { return length(a - b); }
template <class A, class B> inline auto distance_squared(const A& a, const B& b) {
    return length_squared(a - b);
}
template <class A, class B> inline auto reflect(const A& i, const B& n) {
    return i - n * (dot(n, i) * coreai::element_of<A>(2));
}

template <class T> inline T sincos(T x, T& cosine) { cosine = cos(x); return sin(x); }
template <class T> inline T modf(T x, T& whole) { whole = trunc(x); return T(x - whole); }
inline float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }
inline half ldexp(half x, int k) { return half(__builtin_ldexpf(float(x), k)); }
inline float frexp(float x, int& exponent) { return __builtin_frexpf(x, &exponent); }
inline int ilogb(float x) { return __builtin_ilogbf(x); }

// Integers.
#define COREAI_INTEGER_1(name, expression)                                                       \
    template <coreai::integer T> constexpr T name(T x) { return T(expression); }                \
    template <coreai::vector A> constexpr auto name(const A& a) {                                \
        return coreai::map([](coreai::element_of<A> x) { return name(x); }, a);                  \
    }
#define COREAI_INTEGER_2(name, expression)                                                       \
    template <coreai::integer T> constexpr T name(T x, T y) { return T(expression); }           \
    template <class A, class B> requires coreai::some_vector<A, B>                              \
    constexpr auto name(const A& a, const B& b) {                                                \
        using E = coreai::element_of<coreai::meeting_t<A, B>>;                                   \
        return coreai::map([](E x, E y) { return name(x, y); }, a, b);                           \
    }
}  // namespace metal

namespace coreai {
template <class T> using unsigned_t =
    metal::conditional_t<sizeof(T) == 1, uchar, metal::conditional_t<sizeof(T) == 2, ushort,
        metal::conditional_t<sizeof(T) == 4, uint, ulong>>>;
template <class T> inline constexpr int width = int(sizeof(T) * 8);
template <class T> constexpr ulong raw(T x) { return ulong(unsigned_t<T>(x)); }
template <class T> constexpr T reversed(T x) {
    ulong bits = raw(x), out = 0;
    for (int i = 0; i < width<T>; ++i) out |= ((bits >> i) & 1) << (width<T> - 1 - i);
    return T(out);
}
template <class T> constexpr T rotated(T x, T by) {
    int k = int(raw(by) % width<T>);
    ulong bits = raw(x);
    return T(k ? (bits << k) | (bits >> (width<T> - k)) : bits);
}
template <class T> constexpr T high_product(T x, T y) {
    return T((__int128(x) * __int128(y)) >> width<T>);
}
template <class T> constexpr T bounded(__int128 x) {
    __int128 low = metal::numeric_limits<T>::min(), high = metal::numeric_limits<T>::max();
    return T(x < low ? low : x > high ? high : x);
}
}  // namespace coreai

namespace metal {
COREAI_INTEGER_1(popcount, __builtin_popcountl(coreai::raw(x)))
COREAI_INTEGER_1(clz, coreai::raw(x) ? __builtin_clzl(coreai::raw(x)) - 64 + coreai::width<T>
                                     : coreai::width<T>)
COREAI_INTEGER_1(ctz, coreai::raw(x) ? __builtin_ctzl(coreai::raw(x)) : coreai::width<T>)
COREAI_INTEGER_1(reverse_bits, coreai::reversed(x))
COREAI_INTEGER_2(rotate, coreai::rotated(x, y))
COREAI_INTEGER_2(mulhi, coreai::high_product(x, y))
COREAI_INTEGER_2(addsat, coreai::bounded<T>(__int128(x) + __int128(y)))
COREAI_INTEGER_2(subsat, coreai::bounded<T>(__int128(x) - __int128(y)))
COREAI_INTEGER_2(hadd, (__int128(x) + __int128(y)) >> 1)
COREAI_INTEGER_2(rhadd, (__int128(x) + __int128(y) + 1) >> 1)
COREAI_INTEGER_2(mul24, x * y)
#undef COREAI_INTEGER_1
#undef COREAI_INTEGER_2
template <coreai::integer T> constexpr coreai::unsigned_t<T> absdiff(T x, T y) {
    return coreai::unsigned_t<T>(x < y ? coreai::raw(y) - coreai::raw(x)
                                       : coreai::raw(x) - coreai::raw(y));
}
template <coreai::integer T> constexpr T mad24(T x, T y, T z) { return T(x * y + z); }
template <coreai::integer T> constexpr T madhi(T x, T y, T z) { return T(mulhi(x, y) + z); }
template <coreai::integer T> constexpr T extract_bits(T x, uint offset, uint bits) {
    if (bits == 0) return T(0);
    T left = T(coreai::raw(x) << (coreai::width<T> - offset - bits));
    return T(left >> (coreai::width<T> - bits));
}
template <coreai::integer T> constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
    ulong mask = (bits >= 64 ? ~0ul : (1ul << bits) - 1) << offset;
    return T((coreai::raw(base) & ~mask) | ((coreai::raw(insert) << offset) & mask));
}

// Reinterpret the bits of a value as another type of the same size.
template <class To, class From> inline To as_type(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "as_type between types of different sizes");
    To to;
    __builtin_memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), sizeof to);
    return to;
}
inline half unpack_half(ushort bits) { return as_type<half>(bits); }
inline float2 unpack_half_2x16_to_float(uint bits) {
    return float2(float(as_type<half>(ushort(bits))), float(as_type<half>(ushort(bits >> 16))));
}
inline uint pack_float_to_half_2x16(float2 v) {
    return uint(as_type<ushort>(half(v[0]))) | uint(as_type<ushort>(half(v[1]))) << 16;
}
inline float4 unpack_unorm4x8_to_float(uint bits) {
    return float4(bits & 255, bits >> 8 & 255, bits >> 16 & 255, bits >> 24) / 255.0f;
}
inline float4 unpack_snorm4x8_to_float(uint bits) {
    float4 v(char(bits), char(bits >> 8), char(bits >> 16), char(bits >> 24));
    return max(v / 127.0f, -1.0f);
}
inline uint pack_float_to_unorm4x8(float4 v) {
    uint4 u = uint4(rint(saturate(v) * 255.0f));
    return u[0] | u[1] << 8 | u[2] << 16 | u[3] << 24;
}

#define COREAI_ALSO_IN(space)                                                                    \
    namespace space {                                                                            \
    using metal::acos, metal::acosh, metal::asin, metal::asinh, metal::atan, metal::atan2;       \
    using metal::atanh, metal::ceil, metal::cos, metal::cosh, metal::cospi, metal::divide;       \
    using metal::exp, metal::exp10, metal::exp2, metal::fabs, metal::floor, metal::fma;          \
    using metal::fmax, metal::fmin, metal::fmod, metal::fract, metal::log, metal::log10;         \
    using metal::log2, metal::max, metal::min, metal::pow, metal::powr, metal::rint;             \
    using metal::round, metal::rsqrt, metal::sin, metal::sincos, metal::sinh, metal::sinpi;      \
    using metal::sqrt, metal::tan, metal::tanh, metal::tanpi, metal::trunc, metal::clamp;        \
    using metal::saturate, metal::sign, metal::abs, metal::isnan, metal::isinf, metal::dot;      \
    using metal::length, metal::normalize, metal::mix;                                           \
    }
COREAI_ALSO_IN(precise)
COREAI_ALSO_IN(fast)
#undef COREAI_ALSO_IN

}  // namespace metal
using metal::as_type;
