// Tensors as kernels see them: the first index is the contiguous axis.
#pragma once
#include "coreai_threads.h"

namespace metal {

inline constexpr size_t dynamic_extent = ~size_t(0);
struct tensor_handle {};
struct tensor_inline {};
struct tensor_offset {};

template <class I, size_t R> struct dextents {
    using index_type = I;
    I sizes[R];
    static constexpr size_t rank() { return R; }
    constexpr I extent(size_t axis) const { return sizes[axis]; }
};

// `extents<int, 64, dynamic_extent>`: static sizes are ignored here.
template <class I, size_t... E> struct extents : dextents<I, sizeof...(E)> {};

template <class T, class E, class Kind = tensor_handle> struct tensor {
    static constexpr size_t R = E::rank();
    using index_type = typename E::index_type;
    using element_type = T;
    using value_type = remove_cv_t<T>;

    T* data;  // of the complete tensor, also in a slice
    long start, sizes[R], strides[R];

    static constexpr size_t get_rank() { return R; }
    static constexpr size_t rank() { return R; }
    index_type get_extent(size_t axis) const { return index_type(sizes[axis]); }
    index_type extent(size_t axis) const { return index_type(sizes[axis]); }
    index_type get_stride(size_t axis) const { return index_type(strides[axis]); }
    index_type stride(size_t axis) const { return index_type(strides[axis]); }
    dextents<index_type, R> get_extents() const {
        dextents<index_type, R> result{};
        for (size_t a = 0; a < R; ++a) result.sizes[a] = index_type(sizes[a]);
        return result;
    }
    dextents<index_type, R> extents() const { return get_extents(); }
    size_t size() const {
        size_t count = 1;
        for (size_t a = 0; a < R; ++a) count *= size_t(sizes[a]);
        return count;
    }
    T* get_data() const { return data + start; }

    template <class... I> inline T& operator[](I... index) const {
        static_assert(sizeof...(I) == R, "a tensor takes as many indices as it has axes");
        return reach(index...);
    }
    template <class... I> inline T& operator()(I... index) const {
        static_assert(sizeof...(I) == R, "a tensor takes as many indices as it has axes");
        return reach(index...);
    }
    template <class I> inline T& operator[](const array<I, R>& index) const {
        long place = start;
        for (size_t a = 0; a < R; ++a) place += checked(unsigned(a), long(index[a]));
        return data[place];
    }

    // The slice that starts at the given indices, to the end or of the given sizes.
    template <int... S, class... I> auto slice(I... origin) const {
        static_assert(sizeof...(I) == R, "a slice begins at as many indices as there are axes");
        static_assert(sizeof...(S) == 0 || sizeof...(S) == R, "a slice has a size for each axis");
        tensor<T, dextents<index_type, R>, tensor_inline> part{data, start, {}, {}};
        const long from[] = {long(origin)...}, wanted[] = {long(S)..., 0};
        for (size_t a = 0; a < R; ++a) {
            if (from[a] < 0 || from[a] > sizes[a]) coreai::out_of_bounds(data, a, from[a], sizes[a]);
            part.start += from[a] * strides[a];
            part.strides[a] = strides[a];
            part.sizes[a] = sizes[a] - from[a];
            if (sizeof...(S) && wanted[a] > 0 && wanted[a] < part.sizes[a]) part.sizes[a] = wanted[a];
        }
        return part;
    }
    template <class... I> auto offset(I... origin) const { return slice(origin...); }

  private:
    inline long checked(unsigned axis, long index) const {
        if (__builtin_expect((unsigned long)index >= (unsigned long)sizes[axis], 0))
            coreai::out_of_bounds(data, axis, index, sizes[axis]);
        return index * strides[axis];
    }
    template <class... I> inline T& reach(I... index) const {
        long place = start;
        unsigned axis = 0;
        ((place += checked(axis, long(index)), ++axis), ...);
        return data[place];
    }
};

}  // namespace metal

namespace coreai {

template <class T, int R> auto handle(unsigned number) {
    const Tensor& given = tensors[number];
    metal::tensor<T, metal::dextents<int, R>, metal::tensor_handle> result{
        reinterpret_cast<T*>(given.data), 0, {}, {}};
    long stride = 1;
    for (int a = 0; a < R; ++a) {
        result.sizes[a] = given.extents[a];
        result.strides[a] = stride;
        stride *= given.extents[a];
    }
    return result;
}
template <class T> const T& scalar_argument(unsigned number) {
    return *reinterpret_cast<const T*>(tensors[number].data);
}

}  // namespace coreai
