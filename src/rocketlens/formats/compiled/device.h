/* Machine primitives of the kernels: unaligned words, masks of bytes, and arrays of Python.
   No function checks a position: prove first that the bytes are inside the buffer. */

#ifndef ROCKETLENS_DEVICE_H
#define ROCKETLENS_DEVICE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "RocketLens's kernels are written for little endian machines"
#endif

typedef const unsigned char *Bytes;

static inline long long load_i8(Bytes buffer, long long position) {
    return (int8_t)buffer[position];
}

static inline long long load_i16(Bytes buffer, long long position) {
    uint16_t word;
    memcpy(&word, buffer + position, sizeof word);
    return (int16_t)__builtin_bswap16(word);
}

static inline long long load_i32(Bytes buffer, long long position) {
    uint32_t word;
    memcpy(&word, buffer + position, sizeof word);
    return (int32_t)__builtin_bswap32(word);
}

static inline long long load_i64(Bytes buffer, long long position) {
    uint64_t word;
    memcpy(&word, buffer + position, sizeof word);
    return (int64_t)__builtin_bswap64(word);
}

/* Eight bytes, little-endian. */
static inline unsigned long long load_word(Bytes buffer, long long position) {
    uint64_t word;
    memcpy(&word, buffer + position, sizeof word);
    return word;
}

static inline void store_i16(unsigned char *buffer, long long position, long long value) {
    uint16_t word = __builtin_bswap16((uint16_t)value);
    memcpy(buffer + position, &word, sizeof word);
}

static inline void store_i32(unsigned char *buffer, long long position, long long value) {
    uint32_t word = __builtin_bswap32((uint32_t)value);
    memcpy(buffer + position, &word, sizeof word);
}

static inline void store_i64(unsigned char *buffer, long long position, long long value) {
    uint64_t word = __builtin_bswap64((uint64_t)value);
    memcpy(buffer + position, &word, sizeof word);
}

static inline void store_word(unsigned char *buffer, long long position, unsigned long long word) {
    memcpy(buffer + position, &word, 8);
}

/* The memory must not overlap. */
static inline void copy_bytes(
    unsigned char *target, long long position, Bytes source, long long start, long long length) {
    if (length > 0) memcpy(target + position, source + start, (size_t)length);
}

static inline int same_memory(Bytes one, long long at, Bytes other, long long there, long long length) {
    return length <= 0 || memcmp(one + at, other + there, (size_t)length) == 0;
}

static inline void prefetch(Bytes buffer, long long position) {
    __builtin_prefetch(buffer + position, 1, 3);
}

/* The number of the lowest set bit of a mask that is not zero. */
static inline long long lowest_bit(unsigned long long mask) {
    return __builtin_ctzll(mask);
}

/* Compare 64 bytes with `wanted`: bit n is set where byte n is equal. */
static inline unsigned long long byte_mask(Bytes buffer, long long position, int wanted) {
    unsigned long long mask = 0;
#if defined(__SSE2__)
    const __m128i every = _mm_set1_epi8((char)wanted);
    for (int part = 0; part < 4; part++) {
        const __m128i there = _mm_loadu_si128((const __m128i *)(buffer + position) + part);
        const unsigned bits = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(there, every));
        mask |= (unsigned long long)bits << (16 * part);
    }
#else
    const unsigned long long low = 0x7f7f7f7f7f7f7f7fULL;
    const unsigned long long every = 0x0101010101010101ULL * (unsigned char)wanted;
    for (int part = 0; part < 8; part++) {
        const unsigned long long word = load_word(buffer, position + 8 * part) ^ every;
        const unsigned long long zeros = ~(((word & low) + low) | word | low);
        mask |= (((zeros >> 7) * 0x0102040810204080ULL) >> 56) << (8 * part);
    }
#endif
    return mask;
}

/* ---- Arrays that Python passes ---- */

#define MAX_HELD 24

/* The buffers that a kernel call holds until its end. */
typedef struct {
    int count;
    Py_buffer views[MAX_HELD];
} Views;

static inline void release(Views *held) {
    while (held->count > 0) PyBuffer_Release(&held->views[--held->count]);
}

/* Return 1 if the items of a buffer are native numbers of one of these types ("lq"). */
static inline int is_format(const char *format, const char *types) {
    if (format == NULL) return *types == 'B';
    if (*format == '@' || *format == '=' || *format == '<') format++;
    return format[0] != 0 && format[1] == 0 && strchr(types, format[0]) != NULL;
}

/* Return the memory of a one-dimensional, contiguous array, and set its number of items. */
static void *hold(Views *held, PyObject *object, const char *types, Py_ssize_t item_size,
                  int is_written, long long *count) {
    static char empty[16];
    Py_buffer *view = &held->views[held->count];
    const int flags = PyBUF_ND | (types ? PyBUF_FORMAT : 0) | (is_written ? PyBUF_WRITABLE : 0);
    if (held->count == MAX_HELD) {
        PyErr_SetString(PyExc_SystemError, "a kernel has too many arrays");
        return NULL;
    }
    if (PyObject_GetBuffer(object, view, flags) != 0) {
        /* numpy raises ValueError, bytes BufferError, for the same mistake of a caller. */
        if (PyErr_ExceptionMatches(PyExc_BufferError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "a kernel needs a writable array, not %R", Py_TYPE(object));
        }
        return NULL;
    }
    held->count++;
    if (types == NULL && view->itemsize == 1 && view->len % item_size == 0) view->itemsize = item_size;
    if (view->ndim != 1 || view->itemsize != item_size || (types && !is_format(view->format, types))) {
        PyErr_Format(PyExc_TypeError,
                     "a kernel needs an array of one dimension with items '%s' of %zd bytes, not of %d "
                     "dimensions with '%s' of %zd bytes",
                     types ? types : "struct", item_size, view->ndim,
                     view->format ? view->format : "struct", view->itemsize);
        return NULL;
    }
    if (types == NULL && view->len && (size_t)view->buf % sizeof(long long)) {
        PyErr_SetString(PyExc_ValueError, "a kernel needs rows at an aligned address");
        return NULL;
    }
    *count = view->len / item_size;
    return view->buf ? view->buf : empty;
}

#endif
