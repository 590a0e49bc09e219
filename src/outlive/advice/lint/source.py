"""One Python file, parsed once: the questions that checks ask about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While

FRAMEWORKS = ("torch", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "transformers", "trl", "fabric")
TRAINERS = re.compile(r"(^|\W)(Trainer|Seq2SeqTrainer|SFTTrainer|LightningModule|LightningDataModule)$")
OPTIMIZER_NAME = re.compile(r"^_?(\w+_)?(opt|optim|optimizer|optimiser)s?(_?\w{1,12})?$", re.I)
OPTIMIZER_CLASS = re.compile(
    r"^(SGD|Adam\w*|RMSprop|Adagrad|Adadelta|Adafactor|Lion\w*|LBFGS|NAdam|RAdam|Muon|Lamb|LAMB|FusedAdam|\w+Optimizer)$"
)
SCHEDULER_NAME = re.compile(r"^_?(\w+_)?(sched|schedule|scheduler|lr_sched|lr_scheduler|warmup_scheduler)s?\d*$", re.I)
SCHEDULER_CLASS = re.compile(
    r"^(\w+LR|CosineAnnealingWarmRestarts|ReduceLROnPlateau|get_\w*schedule\w*|get_scheduler|CosineLRScheduler)$"
)
EMA_NAME = re.compile(r"(^|_)ema($|_|\d)|^(model_?ema|ema_?model|swa_model|averaged_model)$", re.I)
EMA_CLASS = re.compile(r"^(AveragedModel|EMA|EMAModel|ModelEma\w*|ExponentialMovingAverage|\w+EMA)$")
ACCELERATOR = re.compile(r"^Accelerator$")
MODEL_NAME = re.compile(
    r"^_?(\w*_)?(model|net|network|module|generator|discriminator|encoder|decoder|backbone|unet|policy)$", re.I
)
RANK_NAME = re.compile(r"^_?(\w+_)?rank$|^RANK$|^LOCAL_RANK$|^gpu_id$")
RANK_CALL = re.compile(r"^(get_rank|get_local_rank|get_global_rank|process_index|node_rank)$")
MAIN_WORD = re.compile(
    r"^_?(is_)?(\w+_)?(main_process|master_process|master|main_rank|rank_?zero|rank_?0|global_zero|first_worker"
    r"|world_process_zero|primary|main_proc|chief)$"
)


@dataclass(eq=False)
class Source:
    """A parsed file. ``family`` holds it and the files among those at hand that it imports."""

    path: str
    text: str
    tree: ast.Module
    family: list[Source] = field(default_factory=list)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return every node, in the order of the text."""
        found: list[ast.AST] = []
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            found.append(node)
            stack.extend(reversed(list(ast.iter_child_nodes(node))))
        return found

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Return each node's parent."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Return every call, in the order of the text."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def calls_by_tail(self) -> dict[str, list[ast.Call]]:
        """Return the calls by the last word of what is called."""
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            found.setdefault(tail(call.func), []).append(call)
        return found

    @cached_property
    def functions(self) -> list[Function]:
        """Return every function and method."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def loops(self) -> list[Loop]:
        """Return every loop statement."""
        return [node for node in self.nodes if isinstance(node, Loop)]

    @cached_property
    def words(self) -> set[str]:
        """Return every identifier, attribute and keyword name of the file."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.alias):
                found.add(node.name.rpartition(".")[2])
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.arg):
                found.add(node.arg if isinstance(node, ast.arg) else node.name)
        return found

    @cached_property
    def strings(self) -> set[str]:
        """Return the short string constants."""
        return {
            node.value
            for node in self.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200
        }

    @cached_property
    def imports(self) -> dict[str, str]:
        """Return local name -> dotted origin of every import."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for name in node.names:
                    found[name.asname or name.name.partition(".")[0]] = (
                        name.name if name.asname else name.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    found[name.asname or name.name] = "." * node.level + f"{node.module or ''}.{name.name}".lstrip(".")
        return found

    @cached_property
    def modules(self) -> set[str]:
        """Return the dotted names of the imported modules, relative ones with their dots."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found.update(name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                found.add(base)
                found.update((base if base.endswith(".") else base + ".") + name.name for name in node.names)
        return found

    @cached_property
    def fragment(self) -> bool:
        """Return whether this is a piece of a file (nothing is imported): checks then believe what they see."""
        return not any(isinstance(node, ast.Import | ast.ImportFrom) for node in self.nodes)

    @cached_property
    def is_test(self) -> bool:
        """Return whether this is a test of software: what it leaves out proves nothing."""
        if any(name.partition(".")[0] in ("pytest", "unittest") or ".testing" in name for name in self.modules):
            return True
        return sum(function.name.startswith("test_") for function in self.functions) > 1

    @cached_property
    def uses_torch(self) -> bool:
        """Return whether a framework that trains with torch is imported."""
        return self.fragment or any(
            name.lstrip(".").partition(".")[0] in FRAMEWORKS or name.startswith(".") for name in self.modules
        )

    @cached_property
    def has_raw_loop(self) -> bool:
        """Return whether the file itself goes backward and steps an optimizer."""
        return any(self.backwards) and any(self.optimizer_steps)

    @cached_property
    def is_training(self) -> bool:
        """Return whether this is training code: a loop of its own, a training_step, or a Trainer at work."""
        if self.fragment:
            return True
        if self.is_test or not self.uses_torch:
            return False
        return self.has_raw_loop or "training_step" in self.words or bool(self.trainer_runs)

    @cached_property
    def trainer_runs(self) -> list[ast.Call]:
        """Return the calls that hand the loop to a Trainer: ``trainer.train()``, ``trainer.fit()``."""
        return [
            call
            for name in ("train", "fit")
            for call in self.calls_by_tail.get(name, [])
            if re.search(r"trainer$", base(call.func), re.I)
        ]

    @cached_property
    def handed_over(self) -> bool:
        """Return whether a framework owns the loop (Trainer, Lightning, Accelerate, Fabric)."""
        roots = {name.partition(".")[0] for name in self.modules}
        return bool(roots & {"lightning", "pytorch_lightning", "accelerate"}) or bool(self.trainer_runs)

    @cached_property
    def backwards(self) -> list[ast.Call]:
        """Return the calls of ``backward``, but not definitions and not ``super().backward``."""
        return [
            call
            for call in self.calls_by_tail.get("backward", [])
            if isinstance(call.func, ast.Attribute) and base(call.func) not in ("super()", "ctx")
        ]

    @cached_property
    def optimizer_steps(self) -> list[ast.Call]:
        """Return the calls that step an optimizer, also through a scaler or an engine."""
        return [
            call for call in self.calls_by_tail.get("step", []) if self.steps_optimizer(call)
        ] + self.calls_by_tail.get("optimizer_step", [])

    def steps_optimizer(self, call: ast.Call) -> bool:
        """Return whether ``call`` is a step of an optimizer."""
        who = last_word(base(call.func))
        if self.is_scheduler(who) or is_ema(who):
            return False
        return self.is_optimizer(who) or "scaler" in who.lower() or "engine" in who.lower()

    def is_optimizer(self, word: str) -> bool:
        """Return whether a name holds an optimizer."""
        return word in self.made_by(OPTIMIZER_CLASS) or bool(OPTIMIZER_NAME.match(word))

    def is_accelerator(self, name: str) -> bool:
        """Return whether a name holds an ``Accelerator``."""
        return "accelerator" in name.lower() or last_word(name) in self.made_by(ACCELERATOR)

    def is_scheduler(self, word: str) -> bool:
        """Return whether a name holds a learning rate schedule (not the noise schedule of a diffusion model)."""
        if "noise" in word.lower():
            return False
        return word in self.made_by(SCHEDULER_CLASS) or bool(SCHEDULER_NAME.match(word))

    def made_by(self, pattern: re.Pattern[str]) -> set[str]:
        """Return the names that were assigned from a call of something whose last word fits ``pattern``."""
        known = self._made.get(pattern.pattern)
        if known is None:
            known = self._made[pattern.pattern] = {
                word
                for target, value in self.assignments
                if isinstance(value, ast.Call) and pattern.match(tail(value.func))
                for word in [last_word(dotted(target))]
            }
        return known

    @cached_property
    def _made(self) -> dict[str, set[str]]:
        return {}

    @cached_property
    def assignments(self) -> list[tuple[ast.expr, ast.expr]]:
        """Return every (target, value) of plain and annotated assignments."""
        found: list[tuple[ast.expr, ast.expr]] = []
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                found += [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                found.append((node.target, node.value))
            elif isinstance(node, ast.NamedExpr):
                found.append((node.target, node.value))
        return found

    @cached_property
    def assigned(self) -> dict[tuple[ast.AST, str], list[tuple[ast.expr, ast.expr]]]:
        """Return the assignments by the function that they stand in and the dotted name of their target."""
        found: dict[tuple[ast.AST, str], list[tuple[ast.expr, ast.expr]]] = {}
        for target, value in self.assignments:
            found.setdefault((self.scope(target), dotted(target)), []).append((target, value))
        return found

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parents, the nearest first."""
        at = self.parents.get(node)
        while at is not None:
            yield at
            at = self.parents.get(at)

    def scope(self, node: ast.AST) -> ast.Module | Function:
        """Return the function that holds ``node``, or the module."""
        for parent in self.above(node):
            if isinstance(parent, Function):
                return parent
        return self.tree

    def loop_of(self, node: ast.AST) -> Loop | None:
        """Return the innermost loop around ``node`` within its function."""
        for parent in self.above(node):
            if isinstance(parent, Loop):
                return parent
            if isinstance(parent, Function | ast.ClassDef):
                return None
        return None

    def loops_of(self, node: ast.AST) -> list[Loop]:
        """Return the loops around ``node`` within its function, innermost first."""
        found: list[Loop] = []
        for parent in self.above(node):
            if isinstance(parent, Loop):
                found.append(parent)
            if isinstance(parent, Function | ast.ClassDef):
                break
        return found

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that ``node`` is part of."""
        if isinstance(node, ast.stmt):
            return node
        return next(parent for parent in self.above(node) if isinstance(parent, ast.stmt))

    def inside_with(self, node: ast.AST, wanted: Callable[[ast.expr], bool]) -> bool:
        """Return whether a ``with`` around ``node``, in its function, has an item that is wanted."""
        for parent in self.above(node):
            if isinstance(parent, ast.With | ast.AsyncWith) and any(wanted(i.context_expr) for i in parent.items):
                return True
            if isinstance(parent, Function | ast.ClassDef):
                return False
        return False

    def conditions(self, node: ast.AST, *, until: ast.AST | None = None) -> Iterator[tuple[ast.expr, bool]]:
        """Yield (test, whether it holds) of every ``if`` around ``node``, up to its function or ``until``."""
        below = node
        for parent in self.above(node):
            if parent is until:
                return
            if isinstance(parent, ast.If) and below is not parent.test:
                yield parent.test, any(below is stmt for stmt in parent.body)
            elif isinstance(parent, ast.IfExp) and below is not parent.test:
                yield parent.test, below is parent.body
            if isinstance(parent, Function | ast.ClassDef):
                return
            below = parent

    @cached_property
    def reach(self) -> dict[str, list[tuple[Source, Function]]]:
        """Return the functions of the family by name."""
        found: dict[str, list[tuple[Source, Function]]] = {}
        for source in self.family or [self]:
            for function in source.functions:
                found.setdefault(function.name, []).append((source, function))
        return found

    def reached_words(self, root: ast.AST, depth: int = 4) -> set[str]:
        """Return the words of ``root`` and of the functions of the family that it calls, to a depth."""
        seen: set[ast.AST] = set()
        found: set[str] = set()
        todo: list[tuple[ast.AST, int]] = [(root, 0)]
        while todo:
            node, level = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            words = self._words.get(node)
            if words is None:
                words = self._words[node] = words_of(node)
            found |= words
            if level < depth:
                for word in words & self.reach.keys():
                    todo += [(function, level + 1) for _, function in self.reach[word]]
        return found

    @cached_property
    def _words(self) -> dict[ast.AST, set[str]]:
        return {}

    @cached_property
    def family_words(self) -> set[str]:
        """Return every word of the family."""
        found: set[str] = set()
        for source in self.family or [self]:
            found |= source.words
        return found

    @cached_property
    def family_strings(self) -> set[str]:
        """Return every short string of the family."""
        found: set[str] = set()
        for source in self.family or [self]:
            found |= source.strings
        return found

    def family_calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of these names in the whole family."""
        return [
            call for source in self.family or [self] for name in names for call in source.calls_by_tail.get(name, [])
        ]

    def called_from(self, function: Function) -> list[tuple[Source, ast.Call]]:
        """Return where the family calls ``function`` by its name."""
        method = isinstance(self.parents.get(function), ast.ClassDef)
        found: list[tuple[Source, ast.Call]] = []
        for source in self.family or [self]:
            for call in source.calls_by_tail.get(function.name, []):
                who = base(call.func)
                # `model.train()` is no call of the function `train`
                if (method and who and who not in source.imports) or (
                    not method and (not who or who in source.imports)
                ):
                    found.append((source, call))
        return found

    def repeated(self, node: ast.AST, depth: int = 3) -> bool:
        """Return whether ``node`` runs again and again: in a loop, or in a function that a loop calls."""
        if self.fragment and not self.loops and not self.functions:
            return True
        if self.loop_of(node) is not None:
            return True
        function = self.scope(node)
        if depth and isinstance(function, Function):
            if re.match(r"^(on_\w*(epoch|batch|step|save|evaluat)|training_step|validation_step)", function.name):
                return True
            return any(
                source.repeated(call, depth - 1) for source, call in self.called_from(function) if call is not node
            )
        return False


def dotted(node: ast.AST) -> str:
    """Return an expression of names and attributes as written; calls and subscripts keep a mark."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    if isinstance(node, ast.Subscript):
        return f"{dotted(node.value)}[]"
    return "?"


def tail(node: ast.AST) -> str:
    """Return the last word of a name or attribute, "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def base(node: ast.AST) -> str:
    """Return what stands before the last word: ``opt`` of ``opt.step``."""
    return dotted(node.value) if isinstance(node, ast.Attribute) else ""


def last_word(name: str) -> str:
    """Return the last identifier of a dotted name: ``optimizer`` of ``self.optimizer[]``."""
    found = re.findall(r"\w+", name)
    return found[-1] if found else ""


def words_of(node: ast.AST) -> set[str]:
    """Return the identifiers, attributes and keywords below a node."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
        elif isinstance(part, ast.keyword) and part.arg:
            found.add(part.arg)
    return found


def calls_in(node: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls below ``node`` whose last word is one of ``names`` (none: all), in order of the text."""
    found = [part for part in ast.walk(node) if isinstance(part, ast.Call) and (not names or tail(part.func) in names)]
    return sorted(found, key=position)


def position(node: ast.AST) -> tuple[int, int]:
    """Return (line, column) of a node that has them."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument."""
    return next((word.value for word in call.keywords if word.arg == name), None)


def has_unpacked(call: ast.Call) -> bool:
    """Return whether ``*args`` or ``**kwargs`` stand in the call: what is left out is then unknown."""
    return any(word.arg is None for word in call.keywords) or any(isinstance(arg, ast.Starred) for arg in call.args)


def constant(node: ast.AST | None) -> object:
    """Return the value of a constant, else None."""
    return node.value if isinstance(node, ast.Constant) else None


def is_ema(word: str) -> bool:
    """Return whether a name speaks of averaged weights."""
    return bool(EMA_NAME.search(word))


def is_model(word: str) -> bool:
    """Return whether a name speaks of a model."""
    return bool(MODEL_NAME.match(word)) or word in ("m",)


def no_grad(node: ast.expr) -> bool:
    """Return whether an expression switches gradients off."""
    name = tail(node.func) if isinstance(node, ast.Call) else tail(node)
    if name == "set_grad_enabled" and isinstance(node, ast.Call):
        return not node.args or constant(node.args[0]) is not True
    return name in ("no_grad", "inference_mode")


def autocast(node: ast.expr) -> bool:
    """Return whether an expression is autocast."""
    return isinstance(node, ast.Call) and tail(node.func) == "autocast"


def asks_rank(test: ast.expr) -> bool:
    """Return whether a condition singles out one process: ``rank == 0``, ``is_main_process()``, ``not master``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return asks_rank(test.operand) or _names_rank(test.operand)
    if isinstance(test, ast.BoolOp):
        return any(asks_rank(value) for value in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if not isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.Gt | ast.In | ast.NotIn):
            return False
        for one, other in ((left, right), (right, left)):
            if _names_rank(one) and (constant(other) == 0 or isinstance(other, ast.Tuple | ast.List)):
                return constant(other) is not False
        return False
    if isinstance(test, ast.Call):
        return bool(MAIN_WORD.match(tail(test.func)))
    return bool(MAIN_WORD.match(tail(test)))


def _names_rank(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        if tail(node.func) == "int" and node.args:
            return _names_rank(node.args[0])
        if tail(node.func) in ("get", "getenv") and node.args:
            return constant(node.args[0]) in ("RANK", "LOCAL_RANK", "SLURM_PROCID")
        # a rank within a group says who speaks for the group, every group has one
        return bool(RANK_CALL.match(tail(node.func))) and not node.args and not node.keywords
    if isinstance(node, ast.Subscript):
        return constant(node.slice) in ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return bool(RANK_NAME.match(tail(node)) or RANK_CALL.match(tail(node)))


def apart(source: Source, one: ast.AST, other: ast.AST) -> bool:
    """Return whether two places are in the two branches of one condition: where one runs the other does not."""
    there = list(source.conditions(other))
    return any(
        test is test_there and holds != holds_there
        for test, holds in source.conditions(one)
        for test_there, holds_there in there
    )
