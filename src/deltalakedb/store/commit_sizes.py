"""The sizes of commits at which the store changes how it writes them.

Measured on two cores with SQLite, for files with bounds of three columns, in ms of CPU for the whole commit:

| files of the commit | 8 | 32 | 64 | 128 | 200 | 400 |
|---|---|---|---|---|---|---|
| bounds file by file | 0.6 | 1.7 | 2.9 | 6.1 | 9.3 | 17.5 |
| bounds by column | 3.5 | 5.1 | 5.0 | 7.0 | 9.0 | 14.8 |

| files of the commit (another run) | 250 | 1,000 | 4,000 |
|---|---|---|---|
| Python rows | 11 | 30 | 113 |
| columns throughout | 11 | 26 | 92 |
"""

from typing import Final

FEW_FILES: Final = 32
"""Up to this many files are looked up by key in the round trip that locks the head. A limit for the length of the
statement; not measured."""

APPEND_FILES: Final = 16
"""Up to this many files Postgres runs a whole append as one statement. A limit for its length; not measured."""

FILES_WITH_BOUNDS: Final = 64
"""Up to this many files get their bounds one by one, more by column. Below the 200 at which both cost the same on
SQLite, because DuckDB writes many plain rows more slowly than Arrow: 198 rows of bounds 13 ms against 3.5."""

FEW_ROWS: Final = 200
"""Up to this many rows are written as plain values; more are written by column, as Arrow, by the engine's bulk path
(COPY on Postgres)."""

MANY_FILES: Final = 1_000
"""From this many on, the files that one commit adds become columns at once, without Python rows. This first writes all
that is buffered, so it must be worth a flush."""
