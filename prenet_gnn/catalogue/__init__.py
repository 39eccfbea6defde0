"""The device catalogue: its data files, what an entry holds, and how entries are read.

`spec` has what is known of a device, `reading` checks entries, `devices` finds one by name,
`rates` says how fast it computes in each number format, `prices` what an hour costs. The TOML files
beside them are the data.
"""
