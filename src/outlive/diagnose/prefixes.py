"""What launchers and loggers put in front of a line: ranks, times, levels, file names."""

import re

_ONE = re.compile(
    r"\s*(?:"
    r"\[(?:rank|default|worker|local_rank|gpu|node)[ =:]?\d+\]:?"  # torchrun --tee, python 3.12 torch
    r"|\[\d+,\d+\]<std(?:out|err)>:"  # mpirun --tag-output
    r"|\((?:[A-Za-z_]\w* )?pid=\d+(?:, ip=[\d.]+)?\)"  # ray
    r"|\[?rank[ =:_]?\d+\]?\s?[:|]"
    r"|\d{1,4}:(?=\s)"  # srun --label
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ,_]?\s?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?\d\d/\d\d(?:/\d\d(?:\d\d)?)? \d\d:\d\d(?::\d\d)?(?:[.,]\d+)?\]?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?=[\s|:\]-])"
    r"|\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)? ?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov"
    r"|Dec)\s+\d+ \d\d:\d\d:\d\d(?: \d{4})?Z?\]?"
    r"|\[?<?(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|NOTICE|LOG)>?(?:\|[\w.]+:\d+)?\]?(?::\w[\w.]*:| >>|:"
    r"|(?=[\s|-]))"
    r"|<(?:info|debug|warn|warning|error)>"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d(?:\.\d+)?\s+\d+ [\w./:-]+\]"  # glog
    r"|\[[\w./-]+\.(?:py|cc|cpp|cu):\d+(?::\w+)?\]"
    r"|[\w./-]+\.py:\d+(?::\w+\(?\)?)?(?=[\s|:\]-])"
    r"|\[Rank \d+\]"
    r"|>>(?=\s)"
    r"|[|:-](?=\s)"
    r")",
    re.IGNORECASE,
)


def strip_prefixes(text: str) -> str:
    """Return the line without rank labels, timestamps and logger heads; leading blanks that remain are kept.

    One blank after a label goes with it, so that the indentation of a traceback survives.
    """
    for _ in range(12):
        match = _ONE.match(text)
        if not match or not match.group().strip():
            break
        text = text[match.end() :]
    return text[1:] if text[:1] == " " and text[1:2] not in (" ", "") else text
