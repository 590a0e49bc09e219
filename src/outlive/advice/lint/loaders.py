"""Data sets, samplers and loaders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    Function,
    Source,
    base,
    calls_in,
    constant,
    dotted,
    has_unpacked,
    keyword,
    last_word,
    tail,
    words_of,
)

SMALL = re.compile(r"^(MNIST|FashionMNIST|KMNIST|EMNIST|TensorDataset|CIFAR10|FakeData)$")


def _loaders(source: Source) -> list[ast.Call]:
    return [call for call in source.calls_by_tail.get("DataLoader", []) if not has_unpacked(call)]


def _for_training(source: Source, call: ast.Call) -> bool:
    """Return whether a loader feeds training, by its names or because it shuffles."""
    if constant(keyword(call, "shuffle")) is True:
        return True
    statement = source.statement(call)
    names = [last_word(dotted(target)) for target in getattr(statement, "targets", [])]
    first = call.args[0] if call.args else keyword(call, "dataset")
    names += list(words_of(first)) if first is not None else []
    return any(re.search(r"(^|_)train(?!er)", name, re.I) for name in names)


def loader_defaults(source: Source) -> Iterator[Hit]:
    if SMALL_WORDS & source.family_words:
        return
    for call in _loaders(source):
        workers = keyword(call, "num_workers")
        shuffles = constant(keyword(call, "shuffle")) is True
        if workers is None and shuffles and len(call.args) < 6:
            yield Hit(call, {"value": "missing"})
            return


SMALL_WORDS = {"MNIST", "FashionMNIST", "TensorDataset", "FakeData", "CIFAR10"}


def num_workers_zero(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("DataLoader", []):
        value = constant(keyword(call, "num_workers"))
        if value == 0 and value is not False and (source.fragment or _for_training(source, call)):
            yield Hit(call)


def no_persistent(source: Source) -> Iterator[Hit]:
    for call in _loaders(source):
        value = constant(keyword(call, "num_workers"))
        if isinstance(value, int) and value > 0 and keyword(call, "persistent_workers") is None:
            if source.fragment or _for_training(source, call):
                yield Hit(call)
                return


def pin_without_nonblocking(source: Source) -> Iterator[Hit]:
    pinned = any(constant(keyword(call, "pin_memory")) is True for call in source.calls_by_tail.get("DataLoader", []))
    if not pinned or "non_blocking" in source.family_words or source.handed_over:
        return
    for call in source.calls_by_tail.get("to", []) + source.calls_by_tail.get("cuda", []):
        moved = last_word(base(call.func))
        inside = source.fragment or source.loop_of(call) is not None
        if inside and not re.search(r"model|net|module|crit", moved) and (call.args or tail(call.func) == "cuda"):
            first = call.args[0] if call.args else None
            if first is None or re.search(r"dev|cuda|gpu|rank", ast.unparse(first)):
                yield Hit(call)
                return


def train_no_shuffle(source: Source) -> Iterator[Hit]:
    streams = any(
        re.search(r"Iterable|streaming|WebDataset|shuffle|sampler|Streaming|random_order|perm", word)
        for word in source.family_words - {"shuffle", "sampler", "batch_sampler", "RandomSampler"}
    )
    for call in _loaders(source):
        if (
            any(keyword(call, name) is not None for name in ("shuffle", "sampler", "batch_sampler"))
            or len(call.args) > 2
        ):
            continue
        first = call.args[0] if call.args else keyword(call, "dataset")
        if first is None or streams or not any(re.search(r"(^|_)train(?!er)", word, re.I) for word in words_of(first)):
            continue
        if any(
            re.search(r"eval|val|test|pred", last_word(dotted(t)))
            for t in getattr(source.statement(call), "targets", [])
        ):
            continue
        yield Hit(call)


def _datasets(source: Source, kind: str) -> list[ast.ClassDef]:
    return [
        node
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and any(last_word(dotted(one)) == kind for one in node.bases)
    ]


def _method(node: ast.ClassDef, name: str) -> Function | None:
    return next((one for one in node.body if isinstance(one, Function) and one.name == name), None)


def generator_before_fork(source: Source) -> Iterator[Hit]:
    if _seeds_data_sets(source):
        return
    for node in [*_datasets(source, "Dataset"), *_datasets(source, "IterableDataset")]:
        start, get = _method(node, "__init__"), _method(node, "__getitem__")
        if start is None or get is None:
            continue
        for one in ast.walk(start):
            if not isinstance(one, ast.Assign) or not isinstance(one.value, ast.Call):
                continue
            made = dotted(one.value.func)
            name = tail(one.targets[0])
            if re.search(r"(random\.default_rng|RandomState|^random\.Random)$", made) and name in source.reached_words(
                get, 1
            ):
                yield Hit(one, {"name": dotted(one.targets[0])})


def _seeds_data_sets(source: Source) -> bool:
    """Return whether a worker_init_fn that is given may give the data set a generator of its own."""
    for call in source.family_calls("DataLoader"):
        value = keyword(call, "worker_init_fn")
        if value is None:
            continue
        known = source.reach.get(last_word(dotted(value)), [])
        if not known or any({"dataset", "get_worker_info"} & one.reached_words(made) for one, made in known):
            return True
    return False


def constant_worker_seed(source: Source) -> Iterator[Hit]:
    given = {
        last_word(dotted(value))
        for call in source.calls_by_tail.get("DataLoader", [])
        if (value := keyword(call, "worker_init_fn")) is not None
    }
    for function in source.functions:
        known = function.name in given or re.search(r"worker_init|seed_worker|^wif$|init_fn$", function.name)
        arguments = [arg.arg for arg in function.args.args]
        if not known or len(arguments) != 1:
            continue
        words = source.reached_words(function, 2)
        if {"initial_seed", "get_worker_info", "randint", "epoch"} & words:
            continue
        for call in calls_in(function, "seed", "manual_seed"):
            value = call.args[0] if call.args else None
            if value is None:
                continue
            if isinstance(value, ast.Constant) or _constant_plus(value, arguments[0]):
                yield Hit(call)
                break


def _constant_plus(value: ast.expr, worker: str) -> bool:
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return isinstance(value, ast.Name) and value.id == worker
    sides = [value.left, value.right]
    return any(isinstance(one, ast.Constant) for one in sides) and any(dotted(one) == worker for one in sides)


def _streams(source: Source) -> list[tuple[ast.ClassDef, Function]]:
    found = []
    for node in _datasets(source, "IterableDataset"):
        method = _method(node, "__iter__")
        if method is not None:
            found.append((node, method))
    return found


def iterable_no_worker_info(source: Source) -> Iterator[Hit]:
    many = [
        call
        for call in source.family_calls("DataLoader")
        if (value := keyword(call, "num_workers")) is not None and constant(value) != 0
    ]
    for node, method in _streams(source):
        words = words_of(node) | source.reached_words(method, 2)
        if any(re.search(r"worker|rank|shard|split_by|world|num_replicas", word) for word in words):
            continue
        if source.fragment or many:
            yield Hit(method, {"name": node.name})


def iterable_under_ddp(source: Source) -> Iterator[Hit]:
    words = source.family_words
    if not source.fragment and not words & {"DistributedDataParallel", "DDP"}:
        return
    if any(
        re.search(r"^(Join|islice|join|max_steps|max_iters|steps_per_epoch|num_steps|total_steps|max_iter)$", w)
        for w in words
    ):
        return
    for node, method in _streams(source):
        yield Hit(method, {"name": node.name})


def getitem_modulo(source: Source) -> Iterator[Hit]:
    for function in source.functions:
        if function.name != "__getitem__" or len(function.args.args) < 2:
            continue
        index = function.args.args[1].arg
        for node in ast.walk(function):
            part = node.slice if isinstance(node, ast.Subscript) else None
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) and dotted(part.left) == index:
                if "len" in words_of(part.right) or dotted(part.right).startswith("self."):
                    yield Hit(node)


def getitem_cache(source: Source) -> Iterator[Hit]:
    for function in source.functions:
        if function.name != "__getitem__" or len(function.args.args) < 2:
            continue
        index = function.args.args[1].arg
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
                continue
            target = node.targets[0]
            held = dotted(target.value)
            named = re.search(r"cache|memo|loaded", held)
            if held.startswith("self.") and index in words_of(target.slice) and named:
                if not any(re.search(r"pop|popitem|maxsize|lru|max_cache|cache_size", w) for w in source.words):
                    yield Hit(node, {"name": held})


def normalize_first(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("Compose", []):
        first = call.args[0] if call.args else None
        if not isinstance(first, ast.List):
            continue
        order = [tail(one.func) for one in first.elts if isinstance(one, ast.Call)]
        turns = [order.index(name) for name in ("ToTensor", "ToImage") if name in order]
        if "Normalize" in order and turns and order.index("Normalize") < min(turns):
            yield Hit(first.elts[order.index("Normalize")])


def _aims_at(source: Source, node: ast.AST, pattern: str) -> bool:
    """Return whether what ``node`` is assigned to, or the dict key it stands under, is named so."""
    below = node
    for parent in source.above(node):
        if isinstance(parent, ast.Dict):
            key = next((k for k, v in zip(parent.keys, parent.values, strict=True) if v is below), None)
            return bool(isinstance(constant(key), str) and re.search(pattern, str(constant(key)), re.I))
        if isinstance(parent, ast.Assign):
            return any(re.search(pattern, last_word(dotted(target)), re.I) for target in parent.targets)
        if isinstance(parent, ast.stmt):
            return False
        below = parent
    return False


JUDGED = r"(^|_)(val|valid|validation|eval|test)(_|$)"


def random_in_eval(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("Compose", []):
        first = call.args[0] if call.args else None
        if not isinstance(first, ast.List) or not _aims_at(source, call, JUDGED) or _aims_at(source, call, "train"):
            continue
        for one in first.elts:
            if isinstance(one, ast.Call) and tail(one.func).startswith("Random"):
                yield Hit(one, {"name": tail(one.func)})
                break


def two_normalizes(source: Source) -> Iterator[Hit]:
    sides: dict[str, tuple[str, ast.Call]] = {}
    plain: dict[str, ast.Call] = {}
    for call in source.calls_by_tail.get("Normalize", []):
        literal = [
            arg
            for arg in [*call.args, *(word.value for word in call.keywords)]
            if isinstance(arg, ast.List | ast.Tuple)
        ]
        if len(literal) < 2:
            continue
        text = ast.unparse(call)
        plain.setdefault(text, call)
        side = "eval" if _aims_at(source, call, JUDGED) else "train" if _aims_at(source, call, r"(^|_)train") else ""
        if side:
            sides.setdefault(side, (text, call))
    if len(sides) == 2 and sides["eval"][0] != sides["train"][0]:
        yield Hit(sides["eval"][1])
    elif source.fragment and len(plain) > 1:
        yield Hit(list(plain.values())[-1])


def fit_on_test(source: Source) -> Iterator[Hit]:
    held = re.compile(r"(^|_)(test|val|valid|holdout)(_|$|x$|set$|data$)", re.I)
    scalers = re.compile(r"scal|enc|pca|imput|norm|vectori|^tf|^sc$|^ss$|transform", re.I)
    for name in ("fit", "fit_transform"):
        for call in source.calls_by_tail.get(name, []):
            first = call.args[0] if call.args else None
            if first is None or not held.search(last_word(dotted(first))):
                continue
            if scalers.search(last_word(base(call.func))):
                yield Hit(call, {"name": dotted(first)})


def cv2_no_cvtcolor(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("imread", []):
        if base(call.func) != "cv2" or len(call.args) > 1 or call.keywords:
            continue
        scope = source.scope(call)
        text = ast.unparse(scope) if isinstance(scope, Function) else source.text
        if re.search(r"cvtColor|::-1|\[2, 1, 0\]|BGR|bgr|split\(|GRAY", text):
            continue
        if source.fragment or _feeds_model(source, text):
            yield Hit(call)


def _feeds_model(source: Source, text: str) -> bool:
    return source.uses_torch and bool(re.search(r"to_?tensor|from_numpy|transform|Normalize", text, re.I))


def no_max_length(source: Source) -> Iterator[Hit]:
    for call in source.calls:
        if not re.match(r"^(self\.)?tok(enizer)?$", dotted(call.func)) or has_unpacked(call):
            continue
        if constant(keyword(call, "padding")) in (True, "longest") and not (
            {word.arg for word in call.keywords} & {"truncation", "max_length"}
        ):
            yield Hit(call)
