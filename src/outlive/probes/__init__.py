"""Probes: one reading of the machine each, and nothing changed by looking.

Every probe answers on any machine. What cannot be read is ``None`` with the reason beside it; a probe
raises only for arguments that make no sense. Nothing here needs root, systemd or a particular kernel,
and each module imports only what its first answer needs.
"""
