"""Lines that look like the end of a program: found in a log's tail, and what each one hints at.

A hint is weaker than evidence: ``outcome.classify`` asks for it only after exit status, signal, machine
identity, counters and the scheduler's word have spoken. ``NEUTRAL`` lines are echoes of an end (other ranks
giving up, launchers summing up); they decide nothing, the line before them may.
"""

import re
from typing import List, NamedTuple, Optional, Pattern, Sequence, Tuple

from .lines import LineSplitter
from .parsers import MetricParser
from .prefixes import strip_prefixes

NEUTRAL = ""
_TEXT_LIMIT = 400


class Hint(NamedTuple):
    """What the deciding line says."""

    cls: str
    """An outcome class, or ``unknown`` for a failure whose cause the line does not name."""
    what: str
    """In words."""
    line: str


def _re(*alternatives: str) -> Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


# First match wins for one line. (class, in words, pattern)
HINTS: Tuple[Tuple[str, str, Pattern[str]], ...] = (
    (
        "gpu_fault",
        "the GPU reported a hardware fault",
        _re(
            r"\bXid\b[^:]*(?:\([^)]*\))?\s*:\s*(?:48|62|63|64|74|79|92|94|95|119|120|140)\b",
            r"fallen off the bus",
            r"uncorrectable (?:NVLink|ECC)|ECC error encountered|double.?bit ECC",
            r"GPU is lost|GPU has been lost|Unable to determine the device handle for GPU",
        ),
    ),
    (
        "config",
        "the shared memory of the box is too small or full",
        _re(
            r"insufficient shared memory",
            r"(?:/dev/shm|</?torch_\d)[^\n]*(?:no space|unable|failed)",
            r"(?:no space left|unable to (?:open|write|mmap|allocate))[^\n]*(?:/dev/shm|/?torch_\d|shared memory)",
        ),
    ),
    ("disk", "inodes", _re(r"no inodes|out of inodes|inode (?:quota|limit)")),
    ("disk", "quota", _re(r"disk quota exceeded|Errno 122\]|quota exceeded")),
    (
        "disk",
        "space",
        _re(r"no space left on device|Errno 28\]|ENOSPC|not enough free disk space|disk is full|disk full"),
    ),
    (
        "disk",
        "write",
        _re(r"PytorchStreamWriter failed writing|inline_container.* unexpected pos \d+ vs|failed to write all bytes"),
    ),
    (
        "oom_gpu",
        "the GPU's memory is exhausted",
        _re(
            r"(?:CUDA|HIP|MPS|XPU)(?: backend)? out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation",
            r"\bOutOfMemoryError\b(?!.*\bhost\b)",
            r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY",
            r"RESOURCE_EXHAUSTED.*(?:memory|hbm|alloc)|Out of memory (?:while trying to allocate|allocating) \d",
        ),
    ),
    (
        "oom_host",
        "the memory of the host or of the cgroup is exhausted",
        _re(
            r"oom[-_ ]?kill(?:ed)?\b",
            r"out of memory: kill|memory cgroup out of memory|OUT_OF_MEMORY",
            r"^MemoryError\b|\bMemoryError: |numpy\.\S*MemoryError|_ArrayMemoryError",
            r"can't allocate memory|cannot allocate memory|Errno 12\]|std::bad_alloc|exceeded memory limit",
        ),
    ),
    (
        "driver",
        "driver and CUDA runtime do not fit each other",
        _re(
            r"driver/library version mismatch|driver version is insufficient|driver (?:on your system )?is too old"
            r"|Found no NVIDIA driver",
            r"forward compatibility was attempted|unsupported display driver|system not yet initialized|nvml.*mismatch",
            r"couldn't communicate with the NVIDIA driver|Error 80[234]:",
        ),
    ),
    (
        "walltime",
        "the scheduler's time limit was reached",
        _re(r"DUE TO TIME LIMIT|walltime.*exceeded|exceeded.*walltime"),
    ),
    (
        "preempted",
        "the scheduler or the platform took the machine back",
        _re(r"DUE TO PREEMPTION|pending preemption|DUE TO NODE FAILURE|spot (?:instance )?interruption"),
    ),
    (
        "nan",
        "the numbers are no longer finite",
        _re(
            r"loss (?:is|became|was|=|:)\s*(?:nan|inf|not finite)|(?:nan|inf"
            r"|non-?finite)\b.{0,30}\bloss\b.{0,60}(?:stop|abort|exit)",
            r"loss scale already at minimum|minimum loss scale reached",
            r"(?:FloatingPoint|NaN|NonFinite\w*)Error|found nan|contains? (?:nan|inf)s?\b|nan or inf\b|nan detected",
        ),
    ),
    (
        "config",
        "the command line or a setting was refused",
        _re(
            r"error: (?:unrecognized arguments|the following arguments are required|argument |ambiguous option"
            r"|invalid choice)",
            r"^usage: |error: no such option|Error: (?:No such option|Missing (?:option|argument|parameter)"
            r"|Invalid value for)",
            r"\b(?:Config\w*Error|MissingMandatoryValue|MissingConfigException|OmegaConf\w*|HydraException"
            r"|ValidationError|ArgumentError|UsageError)\b",
            r"KeyError: ['\"]?(?:config|cfg|args?|hparams)",
            r"(?:Missing|Unexpected) key\(s\) in state_dict|size mismatch for |Error\(s\) in loading state_dict",
            r"address already in use|invalid device ordinal|Duplicate GPU detected",
            r"not compiled with CUDA|No CUDA GPUs are available|no CUDA-capable device|no kernel image is available",
            r"could not select device driver",
            r"\b40[13] (?:Client Error|Forbidden|Unauthorized)|gated repo|GatedRepoError|RepositoryNotFoundError"
            r"|api_key not configured|No API key|invalid (?:api|access) (?:key|token)",
            r"^PermissionError\b|Permission denied",
        ),
    ),
    (
        "command_missing",
        "the command was not found",
        _re(
            r"command not found|can't open file .*No such file|exec format error|bad interpreter|: not found$"
            r"|^exec: .*not found"
        ),
    ),
    (
        NEUTRAL,
        "an echo of another process's end",
        _re(
            r"ChildFailedError|CalledProcessError|ProcessExitedException|ProcessRaisedException|SignalException",
            r"KeyboardInterrupt|SystemExit|BrokenPipeError|Received \d+ death signal|Sending process \d+ closing",
            r"DistBackendError|ncclRemoteError|ncclSystemError|NCCL error: (?:remote|unhandled system)"
            r"|RendezvousConnectionError|RendezvousClosedError|DistNetworkError|DistStoreError",
            r"(?:gloo|c10d|TCPStore|ProcessGroup|store).{0,200}(?:connection|timed? ?out|reset|closed)",
            r"Watchdog caught collective|collective operation timeout|NCCL operations have failed"
            r"|DataLoader worker .*exited unexpectedly",
            r"background workers are no longer alive|terminate called",
            r"exitcode\s*:? ?-?\d+|Killing subprocess|slurmstepd|srun: |^Terminated\b|^Killed\b|^Aborted\b"
            r"|killed by signal",
            r"Segmentation fault|SIGSEGV|SIGABRT|SIGKILL|SIGTERM|core dumped|Bus error"
            r"|^\[?[\w.-]*:?\d*\]? \*\*\* Process received signal",
        ),
    ),
    (
        "network",
        "a hub, tracker or other service could not be reached",
        _re(
            r"Max retries exceeded|Temporary failure in name resolution|Name or service not known|gaierror",
            r"\b(?:requests|urllib3?|httpx|httpcore|aiohttp|botocore|http\.client|huggingface_hub"
            r"|wandb)\b\S*(?:Error|Exception|Timeout\w*|Disconnected)\b",
            r"\b(?:ConnectTimeout|ReadTimeout|ConnectError|ReadError|RemoteProtocolError|IncompleteRead"
            r"|ChunkedEncodingError|SSLError|ProxyError|CommError|LocalEntryNotFoundError|OfflineModeIsEnabled"
            r"|EndpointConnectionError|URLError|RemoteDisconnected|ServerDisconnectedError)\b",
            r"\b(?:429|50[0234]) (?:Server|Client) Error|Too Many Requests|Bad Gateway|Service Unavailable"
            r"|Gateway Time-?out",
            r"^(?:\w+\.)*Connection(?:Reset|Refused|Aborted)?Error\b|Connection (?:reset by peer|timed out)"
            r"|Read timed out|Network is unreachable",
            r"^(?:\w+\.)*TimeoutError\b|couldn't connect to '?https?:",
        ),
    ),
    (
        "unknown",
        "a storage error of which the cause is not known",
        _re(r"Errno 5\]|input/output error|stale (?:nfs )?file handle|Errno 116\]|transport endpoint is not connected"),
    ),
    (
        "code",
        "the program ended with an exception",
        _re(
            r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)\b(?::|$|\()",
            r"^(?:[A-Za-z_]\w*\.)*(?:StopIteration|AssertionError|NotImplementedError|UnpicklingError"
            r"|JSONDecodeError|\w*Fault)\b",
            r"CUDA error: |device-side assert|Assertion .* failed|Fatal Python error|panicked at|undefined symbol",
        ),
    ),
)
"""What a line hints at. The table is read top down for each line; the lines are read from the last to the first."""

_LOOKS_FATAL = _re(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)\b(?::|$)",
    r"\b(?:RuntimeError|AssertionError|OutOfMemoryError|FloatingPointError|ChildFailedError|OSError|KeyError): ",
    r"^\S{1,60}: error: |^usage: .*\[-h\]",
    r"no space left on device|disk quota exceeded|out of memory|oom[-_ ]kill",
    r"NVRM: Xid|fallen off the bus|uncorrectable ECC|GPU is lost",
    r"driver/library version mismatch|driver version is insufficient|Found no NVIDIA driver"
    r"|couldn't communicate with the NVIDIA",
    r"^Segmentation fault|^Bus error|^Aborted\b|^Killed\b|^Terminated\b|core dumped|Fatal Python error|^panic:"
    r"|panicked at|^FATAL\b",
    r"\[\d+\]\s+\d+ (?:killed|segmentation fault|abort|bus error)",
    r"terminate called|^\s*what\(\):|received signal|exitcode\s*: ?-?[1-9]|exited unexpectedly|is killed by signal",
    r"slurmstepd: error|srun: error|DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)",
    r"command not found|bad interpreter|can't open file|Permission denied",
    r"Watchdog caught collective|wandb: ERROR|loss is (?:nan|inf)|Loss scale already at minimum"
    r"|Received \d+ death signal",
    r"could not select device driver|^docker: Error|insufficient shared memory",
)
_HARMLESS = _re(
    r"\bWarning\b|\bWARN(?:ING)?\b|\bretry(?:ing)?\b|Retrying|Unable to register (?:cu|factory)|\bignored\b"
    r"|\b0 errors?\b",
    r"leaked semaphore|DeprecationWarning|PYTORCH_CUDA_ALLOC_CONF is deprecated|resource_tracker",
)
_LEVEL_BELOW_ERROR = re.compile(r"\s*\S{0,40}?\[?\b(?:TRACE|DEBUG|INFO|WARNING|WARN)\b", re.IGNORECASE)
_HARDWARE = _re(r"NVRM: Xid|fallen off the bus|uncorrectable ECC|oom[-_ ]kill|slurmstepd")
_TRACEBACK = "Traceback (most recent call last)"
_CHAIN = _re(r"^During handling of the above exception|^The above exception was the direct cause")
_RICH_FRAME = re.compile(r"^[╭│╰]")


def fatal_lines(tail: bytes, limit: int = 20) -> Tuple[str, ...]:
    """Return the fatal-looking lines of the tail of ONE attempt's log, oldest first, at most ``limit``.

    The final line of each traceback with the line that goes on after it, and lines that kernels, shells,
    schedulers and launchers print at an end. What three metric lines have followed was survived and is
    left out (hardware faults and kills stay). Prefixes of ranks and loggers are taken off; each line is at most
    400 characters. Never raises.
    """
    splitter = LineSplitter()
    lines = [line.text for line in splitter.feed(tail) + splitter.flush() if not line.bar]
    found: List[str] = []
    in_trace = False
    more = 0
    progress = 0
    for raw in lines:
        raw = raw[:4000]
        text = strip_prefixes(raw)
        at = text.find(_TRACEBACK)
        if at >= 0:
            in_trace, more = True, 0
            continue
        indented = text[:1] in (" ", "\t")
        bare = text.strip()
        if not bare or _RICH_FRAME.match(bare):
            continue
        if in_trace:
            if indented:
                continue
            in_trace = False
            if _CHAIN.match(bare):
                continue
            _add(found, bare)
            progress, more = 0, 2
            continue
        if more and indented and not bare.startswith("File "):  # "Error(s) in loading state_dict:" goes on below
            more -= 1
            _add(found, bare)
            continue
        more = 0
        if _LOOKS_FATAL.search(bare) and not _harmless(raw, bare):
            _add(found, bare)
            progress = 0
        elif found and _is_progress(raw):
            progress += 1
            if progress >= 3:
                found = [f for f in found if _HARDWARE.search(f)]
    return tuple(found[-limit:]) if limit > 0 else ()


def _add(found: List[str], text: str) -> None:
    text = text[:_TEXT_LIMIT]
    if text in found:  # every rank says it
        found.remove(text)
    found.append(text)


def _harmless(raw: str, bare: str) -> bool:
    return bool(_HARMLESS.search(bare)) or bool(_LEVEL_BELOW_ERROR.match(raw))


def _is_progress(raw: str) -> bool:
    parser = MetricParser()
    data = raw.encode("utf-8", "replace")
    return any("loss" in p or "step" in p for p in parser.feed(data) + parser.flush())


def hint(lines: Sequence[str]) -> Optional[Hint]:
    """Return what the lines hint at, or None when none of them names a cause.

    A hardware fault anywhere decides; else the last line that is no echo of another end.
    """
    plain: Optional[Hint] = None
    for line in reversed(lines):
        found = _hint_of(str(line))
        if found is None:
            continue
        if found.cls == "gpu_fault":
            return found
        if plain is None and found.cls != NEUTRAL:
            plain = found
    return plain


def _hint_of(line: str) -> Optional[Hint]:
    bare = line.strip()[:_TEXT_LIMIT]
    for cls, what, pattern in HINTS:
        if pattern.search(bare):
            return Hint(cls, what, bare)
    return None
