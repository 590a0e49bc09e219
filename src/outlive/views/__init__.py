"""A run, a box, a platform, a finding as plain data, text and JSON. Drawing only: nothing here decides or connects."""
