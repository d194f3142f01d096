"""Explains a folder to a user who could not write there: what table it holds, who manages it, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import DeltaError, DeltaProtocolError, LogGapError, TableNotFoundError, redact
from deltalakedb.files.log_folder import LogListing
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.completion import Mark
from deltalakedb.log.protocol.fence import FEATURE, unfence
from deltalakedb.mirror.external import newest_mark
from deltalakedb.mirror.notice import read_notice
from deltalakedb.store import locations, registry
from deltalakedb.store.connection import Store
from deltalakedb.store.locations import LocationRow
from deltalakedb.store.registry import TableRow

_MOST_RUNS = 5


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a folder holds, as a word and as a sentence; whether something is wrong; what to do."""

    kind: str
    found: str
    advice: str
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class _Registered:
    """What the given catalog has registered for a location."""

    catalog_id: str
    table: TableRow | None
    place: LocationRow | None


@dataclass(frozen=True, slots=True)
class _Fenced:
    """A fenced table: its version, and the mark of our newest commit in it."""

    location: str
    version: int
    mark: Mark | None
    notice: str | None

    @property
    def summary(self) -> str:
        name = "" if self.mark is None else f" as {self.mark.table}"
        return f"a Delta table at version {self.version}, behind the writer feature {FEATURE}{name}"


def diagnose(location: str, options: Mapping[str, str] | None = None, store: Store | None = None) -> Diagnosis:
    """Examine a folder, and what a catalog has registered for it if one is given. Writes nothing."""
    reader = FileTxnLogReader(location, options, table=location)
    where = redact(reader.location)
    registered = None if store is None else _look_up(store, reader.location)
    try:
        snapshot = reader.snapshot()
        is_fenced = unfence(snapshot.protocol)[1]
        mark = newest_mark(reader) if is_fenced else None
    except TableNotFoundError:
        advice = "check the path: a Delta table has a folder _delta_log in it"
        return Diagnosis("none", f"no Delta table at {where}", advice, is_wrong=True)
    except LogGapError as error:
        return _explain_gap(where, reader.listing(), error.missing_version, registered)
    except (DeltaError, OSError) as error:
        if isinstance(error, DeltaProtocolError):
            advice = "put the file that is damaged back from a backup, or use a reader that knows what the log asks for"
        else:
            advice = "check the path, and access to it (--storage-option, AWS_*, AZURE_*, GOOGLE_*)"
        return Diagnosis("unreadable", redact(" ".join(str(error).split())), advice, is_wrong=True)
    if not is_fenced:
        return _explain_open(where, snapshot.version, registered)
    fenced = _Fenced(where, snapshot.version, mark, read_notice(location, options))
    if registered is None or mark is None or mark.catalog_id != registered.catalog_id:
        return _explain_foreign(fenced, registered)
    return _explain_own(fenced, registered)


def _look_up(store: Store, location: str) -> _Registered:
    with store.read() as conn:
        return _Registered(
            registry.catalog_id(conn),
            registry.table_by_location(conn, location),
            locations.find_location(conn, location),
        )


def _explain_gap(where: str, listing: LogListing, first: int, registered: _Registered | None) -> Diagnosis:
    """Describe a log with missing commits that no checkpoint replaces."""
    latest = listing.latest_version or first
    sentence = f"the log of {where} has a gap: {_missing(listing, first, latest)}, its newest is {latest}"
    table = None if registered is None else registered.table
    if table is not None and table.mode == "managed":
        advice = f"`dl validate {table.full_name} --repair` writes them again from the catalog"
    else:
        advice = "put those files of _delta_log back from a backup: no reader can do without them"
    return Diagnosis("gap", sentence, advice, is_wrong=True)


def _missing(listing: LogListing, first: int, latest: int) -> str:
    """The versions whose commits are missing, as `version 3` or `versions 3 to 5, 8`."""
    runs: list[tuple[int, int]] = []
    start = listing.missing_commit(first, latest)
    while start is not None and len(runs) < _MOST_RUNS:
        end = min((version for version in listing.commits if version > start), default=latest + 1) - 1
        runs.append((start, end))
        start = listing.missing_commit(end + 1, latest)
    listed = ", ".join(
        str(first_missing) if first_missing == end else f"{first_missing} to {end}" for first_missing, end in runs
    ) + (", ..." if start else "")
    is_one = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"version {listed} is missing" if is_one else f"versions {listed} are missing"


def _explain_open(where: str, version: int, registered: _Registered | None) -> Diagnosis:
    """Describe a table that every Delta writer can write."""
    sentence = f"a plain Delta table at version {version}: every Delta writer can write it"
    table = None if registered is None else registered.table
    if table is None:
        advice = f"`dl attach {where} --as NS.NAME` follows it, `dl import` lets the catalog manage it"
        return Diagnosis("plain", sentence, advice)
    if table.mode == "managed":
        if table.state == "detaching":
            return Diagnosis(
                "half-detached", f"{sentence}; its detach is not done", _again("detach", table), is_wrong=True
            )
        advice = f"`dl validate {table.full_name}` says what the files lack, `dl validate --repair` puts it back"
        sentence = f"{sentence}, though this catalog manages it as {table.full_name}: its fence is gone"
        return Diagnosis("unfenced", sentence, advice, is_wrong=True)
    what = "follows it" if table.mode == "follower" else "managed it until it was detached"
    return Diagnosis(table.mode, f"{sentence}; this catalog {what}, as {table.full_name}", _again("promote", table))


def _explain_own(fenced: _Fenced, registered: _Registered) -> Diagnosis:
    """Describe a table behind the given catalog's own fence."""
    table = registered.table
    if table is None:
        if registered.place is not None and registered.place.state == locations.DROPPED:
            sentence, name = f"{fenced.summary}; it was dropped from this catalog", registered.place.table_name
            return Diagnosis("dropped", sentence, f"`dl undrop {name}` brings it back until its files are purged")
        sentence = f"{fenced.summary}; this catalog put the fence there and knows no table here"
        return Diagnosis("unknown", sentence, _take_over(fenced), is_wrong=True)
    if table.mode != "managed":
        sentence = f"{fenced.summary}; the promotion of {table.full_name} was interrupted"
        return Diagnosis("half-promoted", sentence, _again("promote", table), is_wrong=True)
    if table.state == "frozen":
        sentence = f"{fenced.summary}; {table.full_name} is frozen, because another writer wrote into its files"
        advice = f"`dl validate {table.full_name}`, then `dl mirror resolve {table.full_name} --adopt` or --overrule"
        return Diagnosis("frozen", sentence, advice, is_wrong=True)
    if table.state == "detaching":
        return Diagnosis("half-detached", f"{fenced.summary}; its detach is not done", _again("detach", table), True)
    sentence = f"{fenced.summary}; this catalog manages it as {table.full_name}"
    return Diagnosis("managed", sentence, _how_to_write(table.full_name, fenced))


def _explain_foreign(fenced: _Fenced, registered: _Registered | None) -> Diagnosis:
    """Describe a table behind the fence of another catalog, or of one that was not given."""
    mark = fenced.mark
    if mark is None:
        return Diagnosis("fenced", f"{fenced.summary}; no commit tells by whom", _take_over(fenced), is_wrong=True)
    owner = f"the catalog {mark.catalog_id}" + (f" ({fenced.notice})" if fenced.notice else "")
    sentence = f"{fenced.summary}; managed by {owner}" + (", not by this one" if registered is not None else "")
    return Diagnosis("fenced", sentence, _how_to_write(mark.table, fenced), is_wrong=registered is not None)


def _how_to_write(name: str, fenced: _Fenced) -> str:
    return (
        f"write it by its name through its catalog, in Python, with `dl`, or in Spark by {name} (docs/spark.md); "
        f"`dl detach {name}` lets every Delta writer write {fenced.location} again"
    )


def _take_over(fenced: _Fenced) -> str:
    return f"`dl import --rebuild {fenced.location}` into a new database takes over from a catalog that is lost"


def _again(verb: str, table: TableRow) -> str:
    what = "lets this catalog manage it" if verb == "promote" else "goes on where it was"
    return f"`dl {verb} {table.full_name}` {what}"
