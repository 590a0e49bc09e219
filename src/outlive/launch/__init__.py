"""Launch files: one description of "N nodes, these commands, environment, mounts, limits, signals", and its renderings.

Pure: values in, text out, nothing opened but this package's own templates. The same description always gives
the same bytes.

- ``description``: ``Launch``, checked when it is made
- ``kinds``: the table of renderings, ``render(launch, kind)``
- ``fill``, ``shell``: strict templates, quoting
- one file per family: ``torchrun``, ``accelerate``, ``deepspeed``, ``wrappers``, ``slurm``, ``docker``, ``kubernetes``,
  ``network``, ``profiling``
- ``templates``: what comes out, as files that can be read without the code
"""
