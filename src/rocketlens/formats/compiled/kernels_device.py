"""Primitives of the kernels: unaligned big-endian words, byte masks, text hashes.

Each primitive below is a plain function that says, checked, what it does; compiled code gets one
or two machine instructions for it instead, without a check. So the rule for every caller is: prove
that the bytes are inside the array first. ``NUMBA_BOUNDSCHECK=1`` compiles the checked functions
instead (give it a cache directory of its own), which is how the tests find a read outside.

Positions, lengths and numbers are ``int64`` throughout, bit patterns ``uint64``; numba turns a mix
of the two into a float, so constants for bit patterns are ``np.uint64``. Little endian only.

Compiled code is cached on disk. numba looks at the file of the outermost function only to see
whether the cache is stale, not at this file, so each file of kernels carries a digest of what it
takes in: see ``INLINED`` there.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import event
from numba.extending import intrinsic, overload, register_jitable
from numpy.typing import NDArray

from rocketlens.model import compiling
from rocketlens.model.text import java

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Array = TypeVar("_Array", bound=NDArray[Any])
ByteArray = NDArray[np.uint8]

CHECKED: Final = bool(config.BOUNDSCHECK)

# Read-only types also take writable arrays, so a memory map and an array share one kernel.
READ_ONLY_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
READ_ONLY_INT32S: Final = types.Array(types.int32, 1, "C", readonly=True)
READ_ONLY_INT64S: Final = types.Array(types.int64, 1, "C", readonly=True)
BYTES: Final = types.Array(types.uint8, 1, "C")
BOOLEANS: Final = types.Array(types.boolean, 1, "C")
INT32S: Final = types.Array(types.int32, 1, "C")
INT64S: Final = types.Array(types.int64, 1, "C")
NUMBER: Final = types.int64
MASK_BYTES: Final = 64
"""Bytes that :func:`byte_mask` compares."""
WORD_BYTES: Final = 8

ZERO: Final = np.uint64(0)
ONE: Final = np.uint64(1)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_ALL_BITS: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_EVERY_SECOND_BYTE: Final = np.uint64(0x00FF00FF00FF00FF)
_EVERY_SECOND_PAIR: Final = np.uint64(0x0000FFFF0000FFFF)
_EIGHT: Final = np.uint64(8)
_SIXTEEN: Final = np.uint64(16)
_THIRTY_TWO: Final = np.uint64(32)
_POWERS_OF_31: Final = np.array([31**n for n in range(9)], np.uint64)
_POWER_1: Final = np.uint64(31)
_POWER_2: Final = np.uint64(31**2)
_POWER_4: Final = np.uint64(31**4)
_POWER_8: Final = np.uint64(31**8)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: an odd factor that spreads every input bit upwards."""


def device(function: _Function) -> _Function:
    """Compile for use inside kernels only."""
    compiled: _Function = njit(nogil=True, boundscheck=CHECKED, forceinline=True)(function)
    return compiled


_COMPILE_EACH: Final[list[Callable[[], Any]]] = []
"""Compiles, or loads, each kernel of the modules that were imported."""


class CompiledKernels(NamedTuple):
    """How many kernels there are, and in which directories their code is kept, if in any."""

    number: int
    directories: tuple[str, ...]


def compile_kernels() -> CompiledKernels:
    """Compile all kernels of the modules that were imported, or load what was compiled before."""
    paths = [compile_one().stats.cache_path for compile_one in _COMPILE_EACH]
    kept = () if None in paths else tuple(dict.fromkeys(paths))
    return CompiledKernels(len(paths), kept)


class _NotCompiledError(Exception):
    """Raised in place of compiling a kernel."""


class _Refusal(event.Listener):
    """Raises `_NotCompiledError` when a kernel is about to be compiled."""

    def on_start(self, _: Any) -> None:
        raise _NotCompiledError

    def on_end(self, _: Any) -> None:
        pass


def count_compiled() -> tuple[int, int]:
    """Return how many kernels of imported modules are compiled, of how many; compile none."""
    count = 0
    with event.install_listener("numba:compile", _Refusal()):
        for compile_one in _COMPILE_EACH:
            with suppress(_NotCompiledError):
                count += compile_one() is not None
    return count, len(_COMPILE_EACH)


def kernel(result: Any, *arguments: Any) -> Callable[[_Function], _Function]:
    """Compile for these numba types on the first call, or load what was compiled before.

    The machine code is cached beside the source, or in numba's per-user directory where that
    can't be written, or in ``NUMBA_CACHE_DIR``; with none of them writable each process compiles
    anew, which takes seconds. Several processes may do so at once: files are replaced whole. What
    `compiling.load_with` was given does it, which raises `StoreBusy` where a server stops. The
    types are fixed: anything else is a ``TypeError``.
    """

    def wrap(function: _Function) -> _Function:
        compiled: list[_Function] = []

        def compiled_function() -> _Function:
            compiled[:] = compiled or [_compile(function, result(*arguments))]
            return compiled[0]

        @wraps(function)
        def call(*values: Any) -> Any:
            if not compiled:
                compiling.load(compiled_function)
            return compiled[0](*values)

        _COMPILE_EACH.append(compiled_function)
        return cast("_Function", call)

    return wrap


class _Teller(event.Listener):
    """Passes on that a kernel is being compiled; loading what was compiled before is no event."""

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept: Final = is_kept

    def on_start(self, _event: Any) -> None:
        """Pass it on."""
        compiling.is_compiling(is_kept=self._is_kept)

    def on_end(self, _event: Any) -> None:
        """Do nothing."""


def _compile(function: _Function, signature: Any) -> _Function:
    compiled: _Function
    try:
        with event.install_listener("numba:compile", _Teller(is_kept=True)):
            compiled = njit(signature, cache=True, nogil=True, boundscheck=CHECKED)(function)
    except RuntimeError:
        # numba accepts no other word for a missing cache directory.
        with event.install_listener("numba:compile", _Teller(is_kept=False)):
            compiled = njit(signature, nogil=True, boundscheck=CHECKED)(function)
    return compiled


def _check(buffer: ByteArray, position: int, length: int) -> None:
    if position < 0 or length < 0 or position + length > len(buffer):
        raise IndexError("outside the buffer")


def raw(array: _Array) -> _Array:
    """Return the address of an array's bytes, as device functions need it in machine code.

    numba counts references to an array in every function that gets one, with two locked
    instructions that cost more than hashing a key. An address has no length: pass that, too.
    """
    return array


def load_i8(buffer: ByteArray, position: int) -> int:
    """Read a signed byte."""
    _check(buffer, position, 1)
    value = np.int64(buffer[position])
    return value - 0x100 if value & 0x80 else value


def load_i16(buffer: ByteArray, position: int) -> int:
    """Read two bytes, big endian, signed."""
    _check(buffer, position, 2)
    value = np.int64(buffer[position]) << 8 | np.int64(buffer[position + 1])
    return value - 0x10000 if value & 0x8000 else value


def load_i32(buffer: ByteArray, position: int) -> int:
    """Read four bytes, big endian, signed."""
    _check(buffer, position, 4)
    value = np.int64(0)
    for index in range(position, position + 4):
        value = value << 8 | np.int64(buffer[index])
    return value - 0x100000000 if value & 0x80000000 else value


def load_i64(buffer: ByteArray, position: int) -> int:
    """Read eight bytes, big endian, signed."""
    _check(buffer, position, 8)
    value = np.int64(buffer[position])
    value = value - 0x100 if value & 0x80 else value
    for index in range(position + 1, position + 8):
        value = value << 8 | np.int64(buffer[index])
    return value


def load_word(buffer: ByteArray, position: int) -> np.uint64:
    """Read eight bytes, the first as the lowest."""
    _check(buffer, position, 8)
    value = np.uint64(0)
    for index in range(position + 7, position - 1, -1):
        value = value << np.uint64(8) | np.uint64(buffer[index])
    return value


def store_i32(buffer: ByteArray, position: int, value: int) -> None:
    """Write four bytes, big endian."""
    _check(buffer, position, 4)
    for index in range(4):
        buffer[position + index] = (value >> (24 - 8 * index)) & 0xFF


def store_i64(buffer: ByteArray, position: int, value: int) -> None:
    """Write eight bytes, big endian."""
    _check(buffer, position, 8)
    for index in range(8):
        buffer[position + index] = (value >> (56 - 8 * index)) & 0xFF


def byte_mask(buffer: ByteArray, position: int, wanted: int) -> np.uint64:
    """Compare 64 bytes from ``position`` with ``wanted``: bit n is set where byte n is equal."""
    _check(buffer, position, 64)
    mask = np.uint64(0)
    for index in range(63, -1, -1):
        mask = mask << np.uint64(1)
        if buffer[position + index] == wanted:
            mask = mask | np.uint64(1)
    return mask


def lowest_bit(mask: np.uint64) -> int:
    """Return the number of the lowest set bit of a mask that is not zero."""
    number = 0
    while mask & np.uint64(1) == np.uint64(0):
        mask = mask >> np.uint64(1)
        number += 1
    return number


def prefetch(buffer: ByteArray, position: int) -> None:
    """Prefetch the cache line at ``position``, which will be written soon."""
    _check(buffer, position, 1)


def copy_bytes(
    target: ByteArray, position: int, source: ByteArray, start: int, length: int
) -> None:
    """Copy between two arrays that don't overlap."""
    _check(target, position, length)
    _check(source, start, length)
    for index in range(length):
        target[position + index] = source[start + index]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    if isinstance(array_type, types.Array):
        array = context.make_array(array_type)(context, builder, array).data
    return builder.gep(array, [position])


def _typed_pointer(builder: Any, pointer: Any, element: Any) -> Any:
    return builder.bitcast(pointer, element.as_pointer())


def _loader(bits: int, result: Any, *, swap: bool) -> Any:
    """Return the intrinsic that reads ``bits`` bits at any alignment."""
    element = ir.IntType(bits)

    def typed(_context: Any, buffer: Any, position: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], *arguments)
            value = builder.load(_typed_pointer(builder, pointer, element), align=1)
            if swap and bits > 8:
                value = builder.bswap(value)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        del position
        return result(buffer, types.int64), emit

    return intrinsic(typed)


def _storer(bits: int) -> Any:
    """Return the intrinsic that writes ``bits`` bits, big endian, at any alignment."""
    element = ir.IntType(bits)

    def typed(_context: Any, buffer: Any, position: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, at, number = arguments
            pointer = _pointer(context, builder, signature.args[0], array, at)
            if bits < 64:
                number = builder.trunc(number, element)
            builder.store(builder.bswap(number), _typed_pointer(builder, pointer, element), align=1)
            return context.get_dummy_value()

        del position, value
        return types.void(buffer, types.int64, types.int64), emit

    return intrinsic(typed)


@intrinsic
def _raw(_context: Any, array: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), emit


@intrinsic
def _byte_mask(_context: Any, buffer: Any, position: Any, wanted: Any) -> Any:
    vector = ir.VectorType(ir.IntType(8), 64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, value = arguments
        pointer = _pointer(context, builder, signature.args[0], array, at)
        bytes_there = builder.load(_typed_pointer(builder, pointer, vector), align=1)
        one = builder.insert_element(
            ir.Constant(vector, ir.Undefined),
            builder.trunc(value, ir.IntType(8)),
            ir.Constant(ir.IntType(32), 0),
        )
        every = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        splat = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), every)
        equal = builder.icmp_unsigned("==", bytes_there, splat)
        return builder.bitcast(equal, ir.IntType(64))

    del position, wanted
    return types.uint64(buffer, types.int64, types.int64), emit


@intrinsic
def _lowest_bit(_context: Any, mask: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    del mask
    return types.int64(types.uint64), emit


@intrinsic
def _prefetch(_context: Any, buffer: Any, position: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        word = ir.IntType(32)
        declared = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [pointer.type],
            ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word]),
        )
        write, keep, data = (ir.Constant(word, number) for number in (1, 3, 1))
        builder.call(declared, [pointer, write, keep, data])
        return context.get_dummy_value()

    del position
    return types.void(buffer, types.int64), emit


@intrinsic
def _copy_bytes(
    _context: Any, target: Any, position: Any, source: Any, start: Any, length: Any
) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        out_of = _pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        size = arguments[4]
        declared = builder.module.declare_intrinsic(
            "llvm.memcpy", [into.type, out_of.type, size.type]
        )
        is_volatile = ir.Constant(ir.IntType(1), 0)
        builder.call(declared, [into, out_of, size, is_volatile])
        return context.get_dummy_value()

    del position, start, length
    word = types.int64
    return types.void(target, word, source, word, word), emit


_load_i8 = _loader(8, types.int64, swap=True)
_load_i16 = _loader(16, types.int64, swap=True)
_load_i32 = _loader(32, types.int64, swap=True)
_load_i64 = _loader(64, types.int64, swap=True)
_load_word = _loader(64, types.uint64, swap=False)
_store_i32 = _storer(32)
_store_i64 = _storer(64)


def _use_machine_code() -> None:
    """Replace compiled calls of the functions above by the intrinsics."""
    for function, native in (
        (load_i8, _load_i8),
        (load_i16, _load_i16),
        (load_i32, _load_i32),
        (load_i64, _load_i64),
        (load_word, _load_word),
        (prefetch, _prefetch),
    ):
        _overload_two(function, native)
    for function, native in ((store_i32, _store_i32), (store_i64, _store_i64)):
        _overload_three(function, native)
    _overload_raw()
    _overload_mask()
    _overload_lowest_bit()
    _overload_copy()


# numba compares parameter names, so each call signature is written out.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"


def _overload_two(function: Any, native: Any) -> None:
    def compiled(buffer, position):
        return native(buffer, position)

    overload(function)(lambda buffer, position: compiled)  # noqa: ARG005


def _overload_three(function: Any, native: Any) -> None:
    def compiled(buffer, position, value):
        return native(buffer, position, value)

    overload(function)(lambda buffer, position, value: compiled)  # noqa: ARG005


def _overload_raw() -> None:
    def compiled(array):
        return _raw(array)

    overload(raw)(lambda array: compiled)  # noqa: ARG005


def _overload_mask() -> None:
    def compiled(buffer, position, wanted):
        return _byte_mask(buffer, position, wanted)

    overload(byte_mask)(lambda buffer, position, wanted: compiled)  # noqa: ARG005


def _overload_lowest_bit() -> None:
    def compiled(mask):
        return _lowest_bit(mask)

    overload(lowest_bit)(lambda mask: compiled)  # noqa: ARG005


def _overload_copy() -> None:
    def compiled(target, position, source, start, length):
        return _copy_bytes(target, position, source, start, length)

    overload(copy_bytes)(lambda target, position, source, start, length: compiled)  # noqa: ARG005


if CHECKED:
    for _function in (
        _check,
        raw,
        load_i8,
        load_i16,
        load_i32,
        load_i64,
        load_word,
        store_i32,
        store_i64,
        byte_mask,
        lowest_bit,
        prefetch,
        copy_bytes,
    ):
        register_jitable(_function)
else:
    _use_machine_code()

for _function in (java.utf8_step, java.utf8_string_hash, java.utf8_parse_int):
    register_jitable(_function)


@device
def fold_word(word: np.uint64) -> np.uint64:
    """Hash eight ASCII bytes as ``String.hashCode`` does, from state 0, modulo 2**64.

    Bytes, pairs and quadruples are joined side by side: three multiplications instead of eight
    that wait for each other.
    """
    pairs = (word & _EVERY_SECOND_BYTE) * _POWER_1 + ((word >> _EIGHT) & _EVERY_SECOND_BYTE)
    fours = (pairs & _EVERY_SECOND_PAIR) * _POWER_2 + ((pairs >> _SIXTEEN) & _EVERY_SECOND_PAIR)
    return (fours & _LOW_HALF) * _POWER_4 + (fours >> _THIRTY_TWO)


@device
def last_bytes(buffer: ByteArray, stop: int, length: int) -> np.uint64:
    """Read the 1 to 7 bytes before ``stop``, the last as the highest of the word, zeros below.

    The seven bytes before them must be in the buffer too.
    """
    return load_word(buffer, stop - 8) & (_ALL_BITS << np.uint64(64 - 8 * length))


@device
def hash_text(buffer: ByteArray, start: int, stop: int, seed: int) -> int:
    """Do what :func:`rocketlens.model.text.java.utf8_string_hash` does, faster where all is ASCII.

    ``stop`` must be at least 8, and the bytes inside the buffer.
    """
    state = np.uint64(seed)
    seen = ZERO
    position = start
    while position + 8 <= stop:
        word = load_word(buffer, position)
        seen |= word
        state = state * _POWER_8 + fold_word(word)
        position += 8
    if position < stop:
        word = last_bytes(buffer, stop, stop - position)
        seen |= word
        state = state * _POWERS_OF_31[stop - position] + fold_word(word)
    if seen & _HIGH_BITS:
        return java.utf8_string_hash(buffer, start, stop, seed)
    return np.int64(state & _LOW_HALF)


@device
def index_hash(state: int) -> int:
    """Return the hash that an index file stores: the absolute value of 32 bits, and 0 for
    -2**31.
    """
    if state < 0x80000000:
        return state
    return (0x100000000 - state) & 0x7FFFFFFF


@device
def mix_bytes(buffer: ByteArray, start: int, stop: int) -> np.uint64:
    """Hash bytes to 64 bits, the same on every machine. ``stop`` must be at least 8."""
    state = np.uint64(stop - start)
    position = start
    while position + 8 <= stop:
        state = mix(state, load_word(buffer, position))
        position += 8
    if position < stop:
        state = mix(state, last_bytes(buffer, stop, stop - position))
    return state


@device
def mix(state: np.uint64, word: np.uint64) -> np.uint64:
    """Mix one word into a 64-bit hash."""
    mixed = (state ^ word) * _MIX
    return mixed ^ (mixed >> _THIRTY_TWO)


@device
def same_bytes(buffer: ByteArray, start: int, other: int, length: int) -> bool:
    """Compare two slices of equal length."""
    position = 0
    while position + 8 <= length:
        if load_word(buffer, start + position) != load_word(buffer, other + position):
            return False
        position += 8
    while position < length:
        if buffer[start + position] != buffer[other + position]:
            return False
        position += 1
    return True


@device
def is_ascii(buffer: ByteArray, start: int, stop: int) -> bool:
    """Return whether no byte of the slice is above 0x7F."""
    seen = ZERO
    position = start
    while position + 8 <= stop:
        seen |= load_word(buffer, position)
        position += 8
    while position < stop:
        seen |= np.uint64(buffer[position])
        position += 1
    return seen & _HIGH_BITS == ZERO
