// Scalar types of Metal, their limits, and the traits that the other headers use.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef _Float16 half;
struct bfloat;

namespace metal {

template <class T, T V> struct integral_constant { static constexpr T value = V; };
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> struct remove_cv<volatile T> { using type = T; };
template <class T> struct remove_cv<const volatile T> { using type = T; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using decay_t = remove_cv_t<remove_reference_t<T>>;
template <class... T> using void_t = void;

template <class T>
inline constexpr bool is_floating_point_v =
    is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat> || is_same_v<T, double> ||
    is_same_v<T, long double>;
template <class T, class... U> inline constexpr bool is_one_of_v = (is_same_v<T, U> || ...);
template <class T>
inline constexpr bool is_integral_v =
    is_one_of_v<T, bool, char, signed char, uchar, short, ushort, int, uint, long, ulong,
                long long, unsigned long long, wchar_t, char16_t, char32_t>;
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> struct is_floating_point : integral_constant<bool, is_floating_point_v<T>> {};
template <class T> struct is_integral : integral_constant<bool, is_integral_v<T>> {};
template <class T> struct is_arithmetic : integral_constant<bool, is_arithmetic_v<T>> {};
template <class T>
inline constexpr bool is_signed_v = is_floating_point_v<T> || (is_integral_v<T> && T(-1) < T(0));
template <class T> inline constexpr bool is_unsigned_v = is_integral_v<T> && !is_signed_v<T>;
template <class T> inline constexpr bool is_signed_v<T&> = is_signed_v<T>;

}  // namespace metal

namespace coreai {

template <class T> concept number = metal::is_arithmetic_v<T>;
template <class T> concept plain_number = number<T> && !metal::is_same_v<T, bfloat>;

constexpr uint16_t bfloat_bits(float value) {
    uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);
    return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace coreai

// Rounds after every operation, as the hardware does.
struct bfloat {
    uint16_t bits;
    bfloat() = default;
    template <class T> requires coreai::plain_number<T>
    constexpr bfloat(T value) : bits(coreai::bfloat_bits(float(value))) {}
    constexpr operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
    template <class T> bfloat& operator+=(T o) { return *this = bfloat(float(*this) + float(o)); }
    template <class T> bfloat& operator-=(T o) { return *this = bfloat(float(*this) - float(o)); }
    template <class T> bfloat& operator*=(T o) { return *this = bfloat(float(*this) * float(o)); }
    template <class T> bfloat& operator/=(T o) { return *this = bfloat(float(*this) / float(o)); }
    bfloat& operator++() { return *this += 1; }
    bfloat& operator--() { return *this -= 1; }
    bfloat operator++(int) { bfloat old = *this; *this += 1; return old; }
    bfloat operator--(int) { bfloat old = *this; *this -= 1; return old; }
    constexpr bfloat operator-() const { return bfloat(-float(*this)); }
    constexpr bfloat operator+() const { return *this; }
};

namespace coreai {

// Result type of an operation on two scalars: the wider float, or the C++ rule for integers.
template <class A, class B> struct common { using type = decltype(A() + B()); };
template <> struct common<bfloat, bfloat> { using type = bfloat; };
template <class B> requires plain_number<B> struct common<bfloat, B> {
    using type = metal::conditional_t<metal::is_integral_v<B>, bfloat, float>;
};
template <class A> requires plain_number<A> struct common<A, bfloat> : common<bfloat, A> {};
template <class A, class B> using common_t = typename common<A, B>::type;

}  // namespace coreai

#define COREAI_BFLOAT_OP(op)                                                                     \
    constexpr bfloat operator op(bfloat a, bfloat b) { return bfloat(float(a) op float(b)); }   \
    template <class T> requires coreai::plain_number<T>                                         \
    constexpr auto operator op(bfloat a, T b) {                                                  \
        return coreai::common_t<bfloat, T>(float(a) op float(b));                                \
    }                                                                                            \
    template <class T> requires coreai::plain_number<T>                                         \
    constexpr auto operator op(T a, bfloat b) {                                                  \
        return coreai::common_t<bfloat, T>(float(a) op float(b));                                \
    }
#define COREAI_BFLOAT_TEST(op)                                                                   \
    constexpr bool operator op(bfloat a, bfloat b) { return float(a) op float(b); }             \
    template <class T> requires coreai::plain_number<T>                                         \
    constexpr bool operator op(bfloat a, T b) { return float(a) op float(b); }                  \
    template <class T> requires coreai::plain_number<T>                                         \
    constexpr bool operator op(T a, bfloat b) { return float(a) op float(b); }
COREAI_BFLOAT_OP(+)
COREAI_BFLOAT_OP(-)
COREAI_BFLOAT_OP(*)
COREAI_BFLOAT_OP(/)
COREAI_BFLOAT_TEST(==)
COREAI_BFLOAT_TEST(!=)
COREAI_BFLOAT_TEST(<)
COREAI_BFLOAT_TEST(>)
COREAI_BFLOAT_TEST(<=)
COREAI_BFLOAT_TEST(>=)
#undef COREAI_BFLOAT_OP
#undef COREAI_BFLOAT_TEST

constexpr half operator""h(long double value) { return half(value); }
constexpr half operator""h(unsigned long long value) { return half(value); }
constexpr half operator""H(long double value) { return half(value); }
constexpr bfloat operator""bf(long double value) { return bfloat(float(value)); }
constexpr bfloat operator""bf(unsigned long long value) { return bfloat(float(value)); }
constexpr bfloat operator""BF(long double value) { return bfloat(float(value)); }

namespace coreai {
// One branch of a conditional with different types: `c ? bfloat : 0` has no common type.
template <class T> constexpr decltype(auto) branch(T&& value) {
    if constexpr (metal::is_same_v<metal::decay_t<T>, bfloat>) return float(value);
    else return static_cast<T&&>(value);
}
}  // namespace coreai

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_huge_valf())
#define HUGE_VALH (half(__builtin_huge_valf()))
#define MAXFLOAT __FLT_MAX__
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define FLT_DIG __FLT_DIG__
#define FLT_MANT_DIG __FLT_MANT_DIG__
#define HALF_MAX (half(65504.0f))
#define MAXHALF (half(65504.0f))
#define HALF_MIN (half(6.103515625e-05f))
#define HALF_EPSILON (half(0.0009765625f))
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1l)
#define ULONG_MAX 18446744073709551615ul
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f
#define M_E_H half(M_E_F)
#define M_LOG2E_H half(M_LOG2E_F)
#define M_LN2_H half(M_LN2_F)
#define M_PI_H half(M_PI_F)
#define M_PI_2_H half(M_PI_2_F)
#define M_PI_4_H half(M_PI_4_F)
#define M_1_PI_H half(M_1_PI_F)
#define M_SQRT2_H half(M_SQRT2_F)
#define M_SQRT1_2_H half(M_SQRT1_2_F)
#define assert(condition) ((void)(condition))

namespace metal {

template <class T> struct numeric_limits {
    static constexpr bool is_specialized = is_integral_v<T>, is_signed = is_signed_v<T>;
    static constexpr bool is_integer = true, has_infinity = false;
    static constexpr int digits = int(sizeof(T) * 8) - is_signed;
    static constexpr T max() { return is_signed ? T(~(ulong(1) << (sizeof(T) * 8 - 1))) : T(-1); }
    static constexpr T min() { return is_signed ? T(ulong(1) << (sizeof(T) * 8 - 1)) : T(0); }
    static constexpr T lowest() { return min(); }
};
template <> struct numeric_limits<bool> {
    static constexpr bool max() { return true; }
    static constexpr bool min() { return false; }
    static constexpr bool lowest() { return false; }
};
#define COREAI_LIMITS(T, BITS, MAX, MIN, EPSILON)                                                \
    template <> struct numeric_limits<T> {                                                       \
        static constexpr bool is_specialized = true, is_signed = true, is_integer = false;       \
        static constexpr bool has_infinity = true;                                               \
        static constexpr int digits = BITS;                                                      \
        static constexpr T max() { return T(MAX); }                                              \
        static constexpr T min() { return T(MIN); }                                              \
        static constexpr T lowest() { return T(-(MAX)); }                                        \
        static constexpr T epsilon() { return T(EPSILON); }                                      \
        static constexpr T infinity() { return T(INFINITY); }                                    \
        static constexpr T quiet_NaN() { return T(NAN); }                                        \
        static constexpr T denorm_min() { return T(MIN * EPSILON); }                             \
    };
COREAI_LIMITS(float, 24, FLT_MAX, FLT_MIN, FLT_EPSILON)
COREAI_LIMITS(half, 11, 65504.0f, 6.103515625e-05f, 0.0009765625f)
COREAI_LIMITS(bfloat, 8, 3.3895313892515355e38f, FLT_MIN, 0.0078125f)
#undef COREAI_LIMITS

template <class T, size_t N> struct array {
    T items[N];
    constexpr T& operator[](size_t i) { return items[i]; }
    constexpr const T& operator[](size_t i) const { return items[i]; }
    static constexpr size_t size() { return N; }
};

using ::half, ::bfloat, ::uchar, ::ushort, ::uint, ::ulong;
using ::int8_t, ::int16_t, ::int32_t, ::int64_t, ::uint8_t, ::uint16_t, ::uint32_t, ::uint64_t;
using ::size_t, ::ptrdiff_t;

}  // namespace metal
