"""outlive: makes a GPU job's result outlive the machine it ran on.

Importing this package is cheap and works on Python 3.8, because the travelling
packages below it are imported on boxes; the public library is loaded on first use.
"""

__version__ = "0.1.0"
