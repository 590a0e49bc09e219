"""training_config.yaml: every key is known, every phase has an end; what is wrong is said, with the nearest key."""

import difflib
import json
import math
import sys

PHASE_KEYS = ("name", "data", "steps", "tokens", "lr", "success")
LR_KEYS = ("shape", "start", "peak", "end", "warmup_steps")
SUCCESS_KEYS = ("loss_below", "val_loss_below")
SHAPES = ("cosine", "linear", "constant")


class ConfigError(ValueError):
    """The configuration cannot be used; the text says which key and what to write."""


def load(path, defaults, overrides=()):
    """Return the configuration: the file over ``defaults`` (sections of keys), then ``section.key=value`` words."""
    try:
        import yaml
    except ImportError:
        sys.exit("training_config.yaml needs PyYAML: pip install pyyaml")
    try:
        with open(path, encoding="utf-8") as handle:
            given = yaml.safe_load(handle) or {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: sections with keys are expected, not {type(given).__name__}")
    for word in overrides:
        name, equals, value = word.partition("=")
        section, dot, key = name.partition(".")
        if not equals or not dot:
            raise ConfigError(f"--set {word}: write section.key=value, for example --set train.seed=2")
        if not isinstance(given.setdefault(section, {}), dict):
            raise ConfigError(f"--set {word}: `{section}` is a list; change it in {path}")
        given[section][key] = yaml.safe_load(value)
    config = {section: dict(keys) for section, keys in defaults.items()}
    for section, keys in given.items():
        if section == "phases":
            continue
        _known(section, defaults, path, "section")
        if not isinstance(keys, dict):
            raise ConfigError(f"{path}: `{section}` must hold keys, not {keys!r}")
        for key, value in keys.items():
            _known(key, defaults[section], path, f"key of `{section}`")
            config[section][key] = _typed(value, defaults[section][key], f"{path}: {section}.{key}")
    config["phases"] = _phases(given.get("phases"), path)
    return config


def _known(word, allowed, path, what):
    if word not in allowed:
        near = difflib.get_close_matches(str(word), [str(one) for one in allowed], 1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; there are: {', '.join(allowed)}"
        raise ConfigError(f"{path}: `{word}` is no {what}{hint}")


def _typed(value, default, where):
    if default is None or value is None or isinstance(default, (list, dict)):
        return value
    if isinstance(default, bool) or isinstance(value, bool):
        if type(value) is not type(default):
            raise ConfigError(f"{where} is {value!r}; {type(default).__name__} is expected")
        return value
    if isinstance(default, (int, float)):
        try:
            number = float(value)  # YAML reads 1e-3 (without a point) as text
        except (TypeError, ValueError):
            raise ConfigError(f"{where} is {value!r}; a number is expected") from None
        return int(number) if isinstance(default, int) and number == int(number) else number
    return value


def _number(phase, key, where, default=None, least=None):
    value = phase.get(key, default)
    if value is None:
        return None
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: `{key}` is {value!r}; a number is expected") from None
    if least is not None and value < least:
        raise ConfigError(f"{where}: `{key}` is {value:g}; it must be at least {least:g}")
    return value


def _phases(phases, path):
    if not isinstance(phases, list) or not phases:
        raise ConfigError(f"{path}: `phases` must list at least one phase")
    out, before = [], 0.0
    for number, phase in enumerate(phases):
        if not isinstance(phase, dict):
            raise ConfigError(f"{path}: phase {number + 1} must hold keys")
        name = str(phase.get("name", f"phase{number + 1}"))
        where = f"{path}: phase `{name}`"
        for key in phase:
            _known(key, PHASE_KEYS, where, "key of a phase")
        if ("steps" in phase) == ("tokens" in phase):
            raise ConfigError(f"{where}: it needs an end, either `steps` or `tokens`")
        data = phase.get("data")
        data = {data: 1.0} if isinstance(data, str) else data
        if not isinstance(data, dict) or not data:
            raise ConfigError(f"{where}: `data` is a file, or files with weights")
        weights = {source: _number(data, source, where, least=0) for source in data}
        if not sum(weights.values()):
            raise ConfigError(f"{where}: all weights of `data` are 0")
        lr = phase.get("lr") or {}
        for key in lr:
            _known(key, LR_KEYS, where, "key of `lr`")
        shape = lr.get("shape", "cosine")
        _known(shape, SHAPES, where, "shape of `lr`")
        peak = _number(lr, "peak", where, before or 1e-3, 0)
        policy = {
            "shape": shape,
            "start": _number(lr, "start", where, before, 0),
            "peak": peak,
            "end": peak if shape == "constant" else _number(lr, "end", where, 0.1 * peak, 0),
            "warmup_steps": int(_number(lr, "warmup_steps", where, 0, 0)),
        }
        before = policy["end"]
        success = phase.get("success") or {}
        for key in success:
            _known(key, SUCCESS_KEYS, where, "key of `success`")
        out.append({
            "name": name, "data": weights, "lr": policy,
            "success": {key: _number(success, key, where) for key in success},
            "steps": _number(phase, "steps", where, least=1), "tokens": _number(phase, "tokens", where, least=1),
        })  # fmt: skip
    return out


class Phases:
    """Which phase a step belongs to, and the learning rate there. Steps count over the whole run, from 0."""

    def __init__(self, phases, tokens_per_step):
        self.phases, self.ends, end = phases, [], 0
        for phase in phases:
            end += int(phase["steps"] or math.ceil(phase["tokens"] / tokens_per_step))
            self.ends.append(end)
        self.total = end

    def index(self, step):
        """Return the number of the phase that step ``step`` is in; the last one after the end."""
        return next((i for i, end in enumerate(self.ends) if step < end), len(self.ends) - 1)

    def begin(self, index):
        """Return the first step of a phase."""
        return self.ends[index - 1] if index else 0

    def lr(self, step):
        """Return the learning rate of a step: linear warm-up from ``start`` to ``peak``, then the shape to ``end``."""
        index = self.index(step)
        policy, at = self.phases[index]["lr"], step - self.begin(index)
        length, warm = self.ends[index] - self.begin(index), policy["warmup_steps"]
        if at < warm:
            return policy["start"] + (policy["peak"] - policy["start"]) * (at + 1) / warm
        share = min(1.0, (at - warm) / max(1, length - warm))
        if policy["shape"] == "cosine":
            share = 0.5 * (1.0 - math.cos(math.pi * share))
        return policy["peak"] + (policy["end"] - policy["peak"]) * share

    def unmet(self, index, metrics):
        """Return what the criteria of a finished phase miss, "" when it may go on to the next."""
        for key, limit in self.phases[index]["success"].items():
            value = metrics.get(key[: -len("_below")])
            if value is None or not value < limit:
                return f"{key} {limit:g} is not met: {'not measured' if value is None else f'{value:.4f}'}"
        return ""


def flat(config):
    """Return the configuration as one level of plain values, for the record of a checkpoint."""
    values = {f"{section}.{key}": value for section in config if section != "phases"
              for key, value in config[section].items()}  # fmt: skip
    return {**values, "phases": json.dumps(config["phases"], sort_keys=True)}


RESULT_KEYS = ("seed", "global_batch", "weight_decay", "beta1", "beta2", "grad_clip")
"""Keys of `train` that change what comes out; the others say how it is computed."""


def identity(config):
    """Return what a checkpoint must agree on before it is resumed: model, data, phases and what changes the result."""
    keys = ("model.", "data.val_share", "phases", *(f"train.{key}" for key in RESULT_KEYS))
    return {name: value for name, value in flat(config).items() if name.startswith(keys)}
