"""Remedies for drift: one sentence with a command for each part of the log."""

from deltalakedb.store.registry import TableRow


def remedy(part: str, version: int, table: TableRow, *, mirrored_version: int) -> str:
    """What the user should do about a drift at `version`."""
    name = table.full_name
    if part == "counters":
        return (
            f"{name} still reads right, only its totals are wrong: somebody changed rows by hand, or this is a bug to "
            "report; a database restored from its backup has the right ones"
        )
    if table.mode != "managed":
        return _of_followed(part, table)
    if part in ("commit", "versions") and version > mirrored_version:
        return (
            f"another writer, or a database older than its files: `dl mirror resolve {name} --adopt` takes the files' "
            "commits in and puts ours after them, `--overrule` undoes theirs by a commit of its own"
        )
    if part in ("commit", "versions", "state"):
        return (
            "SQL is the authority and has the right commits: what was mirrored is missing or was changed afterwards. "
            f"Move a changed file out of `_delta_log`, then `dl validate {name} --repair` puts back what is missing"
        )
    if part == "pointer":
        return (
            "readers take it as a hint and may fail on a wrong one: delete `_last_checkpoint`; the next checkpoint "
            "writes it anew"
        )
    if part == "checkpoint":
        return (
            "readers that start from it see another table than SQL: delete that file and `_last_checkpoint`, then "
            f"`dl validate {name} --repair` writes a checkpoint of the newest version"
        )
    return "readers that trust it may refuse the version: delete that `.crc` file, they do without"


def _of_followed(part: str, table: TableRow) -> str:
    if part in ("checkpoint", "checksum", "pointer"):
        return "the files disagree with themselves: tell whoever writes them; SQL was read from the commits"
    return (
        f"the files are the authority and are not those that SQL has read: `dl drop {table.full_name}` and `dl attach` "
        "it again"
    )
