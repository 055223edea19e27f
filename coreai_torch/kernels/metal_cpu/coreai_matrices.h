// Matrices that are distributed over the lanes of a simdgroup, two elements each.
#pragma once
#include "coreai_tensors.h"

namespace metal {

template <class T, int C, int R> struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "simdgroup matrices are eight by eight");
    vec<T, 2> elements;  // row lane / 4, columns 2 * (lane % 4) and the one after it
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T diagonal) {
        for (int k = 0; k < 2; ++k) elements[k] = row() == column() + k ? diagonal : T(0);
    }
    static int row() { return int(coreai::lane() / 4); }
    static int column() { return int(coreai::lane() % 4 * 2); }
    vec<T, 2>& thread_elements() { return elements; }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int C, int R> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> m;
    m.elements = vec<T, 2>(value);
    return m;
}
template <class T, int C, int R>
simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T value) {
    return simdgroup_matrix<T, C, R>(value);
}

template <class T, class P>
void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const P* from, ulong stride = 8,
                    ulong2 origin = ulong2(0), bool transposed = false) {
    for (int k = 0; k < 2; ++k) {
        ulong r = ulong(m.row()), c = ulong(m.column() + k);
        ulong across = origin[0] + (transposed ? r : c), down = origin[1] + (transposed ? c : r);
        m.elements[k] = T(from[down * stride + across]);
    }
}
template <class T, class P>
void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, P* to, ulong stride = 8,
                     ulong2 origin = ulong2(0), bool transposed = false) {
    for (int k = 0; k < 2; ++k) {
        ulong r = ulong(m.row()), c = ulong(m.column() + k);
        ulong across = origin[0] + (transposed ? r : c), down = origin[1] + (transposed ? c : r);
        to[down * stride + across] = P(m.elements[k]);
    }
}
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b,
                                   const simdgroup_matrix<C, 8, 8>& c,
                                   int line = __builtin_LINE()) {
    coreai::Gathered<vec<A, 2>> as(a.elements, line);
    vec<float, 2> sum(float(c.elements[0]), float(c.elements[1]));
    A row[8];
    for (int k = 0; k < 8; ++k) row[k] = as[d.row() * 4 + k / 2][k % 2];
    coreai::Gathered<vec<B, 2>> bs(b.elements, line);
    for (int k = 0; k < 8; ++k) {
        vec<B, 2> other = bs[k * 4 + d.column() / 2];
        for (int j = 0; j < 2; ++j) sum[j] += float(row[k]) * float(other[j]);
    }
    d.elements = vec<D, 2>(D(sum[0]), D(sum[1]));
}
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                        const simdgroup_matrix<B, 8, 8>& b, int line = __builtin_LINE()) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)), line);
}
template <class T>
simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a,
                                    const simdgroup_matrix<T, 8, 8>& b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}

}  // namespace metal
