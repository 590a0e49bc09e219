"""Globals that a checkpoint may name: they build containers, arrays and tensors, and nothing they do reaches outside.

Data for ``formats.pickles``. Anything else in a pickle lowers its level to ``bytes``; nothing is ever called, so a
missing name costs a finding and never safety.
"""

from typing import Dict, FrozenSet, Iterable


def _names(module: str, names: str) -> Iterable[str]:
    return (module + "." + name for name in names.split())


STORAGES: Dict[str, str] = {
    "DoubleStorage": "f64",
    "FloatStorage": "f32",
    "HalfStorage": "f16",
    "BFloat16Storage": "bf16",
    "ComplexDoubleStorage": "c128",
    "ComplexFloatStorage": "c64",
    "LongStorage": "i64",
    "IntStorage": "i32",
    "ShortStorage": "i16",
    "CharStorage": "i8",
    "ByteStorage": "i8",
    "BoolStorage": "i8",
    "QInt8Storage": "i8",
    "QUInt8Storage": "i8",
    "QUInt4x2Storage": "i8",
    "QUInt2x4Storage": "i8",
    "QInt32Storage": "i32",
    "UntypedStorage": "i8",
}
"""torch storage class -> element: ``i`` and bits for what is not scanned, else a form or a complex of two."""

DTYPES: Dict[str, str] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex128": "c128",
    "complex64": "c64",
    "complex32": "c32",
    "float8_e5m2": "f8_e5m2",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e4m3fnuz": "i8",
    "float8_e5m2fnuz": "i8",
    "float8_e8m0fnu": "i8",
    "float4_e2m1fn_x2": "i8",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "i64",
    "uint32": "i32",
    "uint16": "i16",
    "uint8": "i8",
    "bool": "i8",
}
"""torch dtype -> element, as in ``STORAGES``."""

ITEM_BYTES: Dict[str, int] = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8_e5m2": 1,
    "f8_e4m3": 1,
    "c128": 16,
    "c64": 8,
    "c32": 4,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
}

PARTS: Dict[str, str] = {"c128": "f64", "c64": "f32", "c32": "f16"}
"""Complex element -> the float that it is two of."""

_BUILTINS = (
    "bool bytearray bytes complex dict float frozenset int list object range set slice str tuple "
    "Exception KeyError NotImplementedError RuntimeError TypeError ValueError"
)
_TENSORS = " ".join(n + "Tensor" for n in "BFloat16 Bool Byte Char Double Float Half Int Long Short".split())
_NUMPY_DTYPES = (
    "Bool BytesDType Bytes Complex128 Complex64 Float16 Float32 Float64 Int16 Int32 Int64 Int8 Str "
    "UInt16 UInt32 UInt64 UInt8"
)

ALLOWED: FrozenSet[str] = frozenset(
    [
        *_names("builtins", _BUILTINS),
        *_names("__builtin__", _BUILTINS + " long unicode xrange"),
        *_names("collections", "OrderedDict Counter defaultdict deque"),
        *_names("_codecs", "encode"),
        *_names("copyreg", "_reconstructor"),
        *_names("copy_reg", "_reconstructor"),
        *_names("datetime", "date datetime time timedelta timezone"),
        *_names("decimal", "Decimal"),
        *_names("fractions", "Fraction"),
        *_names("uuid", "UUID"),
        *_names("argparse", "Namespace"),
        *_names("types", "SimpleNamespace"),
        *_names("pathlib", "Path PosixPath PurePath PurePosixPath WindowsPath"),
        *_names("pathlib._local", "Path PosixPath PurePath PurePosixPath WindowsPath"),
        *_names(
            "numpy", "ndarray dtype bool_ float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
        ),
        *_names("numpy.core.multiarray", "_reconstruct scalar"),
        *_names("numpy._core.multiarray", "_reconstruct scalar"),
        *_names("numpy.core.numeric", "_frombuffer"),
        *_names("numpy._core.numeric", "_frombuffer"),
        *_names("numpy.dtypes", " ".join(n if n.endswith("DType") else n + "DType" for n in _NUMPY_DTYPES.split())),
        *_names("torch", "Size Tensor device Generator ScriptObject strided sparse_coo sparse_csr"),
        *_names("torch", " ".join(STORAGES)),
        *_names("torch.cuda", " ".join(STORAGES)),
        *_names("torch.storage", "UntypedStorage TypedStorage"),
        *_names("torch", " ".join(DTYPES)),
        *_names("torch", "half float double short int long uint1 uint2 uint3 uint4 uint5 uint6 uint7"),
        *_names("torch", "int1 int2 int3 int4 int5 int6 int7 bits1x8 bits2x4 bits4x2 bits8 bits16"),
        *_names("torch", "qint8 quint8 qint32 quint4x2 quint2x4"),
        *_names("torch", "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric"),
        *_names("torch", "per_channel_affine_float_qparams contiguous_format channels_last preserve_format"),
        *_names("torch", _TENSORS),
        *_names("torch.cuda", _TENSORS),
        *_names("torch.sparse", _TENSORS),
        *_names("torch.cuda.sparse", _TENSORS),
        *_names("torch.nn.parameter", "Parameter Buffer UninitializedParameter"),
        *_names("torch.serialization", "_get_layout"),
        *_names("torch._tensor", "_rebuild_from_type_v2"),
        *_names("torch._utils", "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter"),
        *_names("torch._utils", "_rebuild_parameter_with_state _rebuild_qtensor _rebuild_sparse_tensor"),
        *_names("torch._utils", "_rebuild_meta_tensor_no_storage _rebuild_nested_tensor _rebuild_wrapper_subclass"),
        *_names("torch._utils", "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy"),
        *_names("torch._utils", "_rebuild_sparse_csr_tensor"),
        *_names("torch.torch_version", "TorchVersion"),
    ]
)
"""Full names, ``module.name``. torch.storage._load_from_bytes unpickles what it is given and is not among them."""
