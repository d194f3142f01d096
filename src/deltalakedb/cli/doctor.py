"""`dl doctor`: what of this machine works, and what to install where it does not."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, StorageOption, command, open_catalog, storage_options
from deltalakedb.exceptions import DeltaError, redact

MINIMUM_JAVA = 17
_JAVA_TIMEOUT_SECONDS = 20
_OBJECT_STORE_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: `ok`, `missing` (an optional part is not there) or `failed`."""

    name: str
    status: str
    found: str
    advice: str = ""


def add_to(app: typer.Typer) -> None:
    command(app, "doctor", doctor)


def doctor(
    catalog: CatalogOption = None,
    location: Annotated[
        str | None, typer.Option("--location", metavar="PATH", help="A table or folder whose access is tried.")
    ] = None,
    storage_option: StorageOption = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Start a Spark session as a job does, and check driver and executors.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="With --spark: the cluster, as spark://HOST:7077.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", metavar="URL", help="With --spark: where `dl serve --bridge` is; the token is DL_TOKEN."
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="With --spark: a setting of Spark; may be repeated."),
    ] = None,
) -> None:
    """Check engine, drivers, Java, Spark and object store access; say what to install."""
    checks = [*_packages(), _java(), _catalog(catalog), *_storage(location, storage_options(storage_option))]
    if spark:
        checks += _spark(catalog, master, endpoint, conf or [])
    rows = [asdict(check) for check in checks]
    output.emit(
        rows, lambda: output.table(("check", "status", "found", "what to do"), [tuple(r.values()) for r in rows])
    )
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)


def _packages() -> Iterator[Check]:
    yield Check("python", "ok", platform.python_version())
    yield _package("deltalakedb", "deltalakedb", "")
    for module, distribution in (("pyarrow", "pyarrow"), ("duckdb", "duckdb"), ("obstore", "obstore")):
        yield _package(module, distribution, "", required=True)
    yield _sqlite()
    yield _package("psycopg", "psycopg", "pip install 'deltalakedb[postgres]' to keep the catalog in Postgres")
    yield _package("pyspark", "pyspark", "pip install 'deltalakedb[spark]' for the Spark pipeline")


def _package(module: str, distribution: str, advice: str, *, required: bool = False) -> Check:
    if importlib.util.find_spec(module) is None:
        if required:
            return Check(module, "failed", "not installed", "pip install deltalakedb again: this is a part of it")
        return Check(module, "missing", "not installed", advice)
    try:
        return Check(module, "ok", version(distribution))
    except PackageNotFoundError:
        return Check(module, "ok", "present, version unknown")


def _sqlite() -> Check:
    import sqlite3

    # Row values, upsert and `returning` are in the shared subset of SQL.
    if sqlite3.sqlite_version_info < (3, 35, 0):
        advice = "use a Python built with SQLite 3.35 or newer, or keep the catalog in DuckDB or Postgres"
        return Check("sqlite", "failed", sqlite3.sqlite_version, advice)
    return Check("sqlite", "ok", sqlite3.sqlite_version)


def _java() -> Check:
    advice = f"install a Java {MINIMUM_JAVA} JDK and set JAVA_HOME; only the Spark pipeline needs it"
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if program is None or not os.path.exists(program):
        return Check("java", "missing", f"no {program}" if program else "not found", advice)
    try:
        run = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", "missing", f"{program} does not run: {type(error).__name__}", advice)
    found = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', run.stderr + run.stdout)
    if found is None:
        return Check("java", "missing", f"{program} does not tell its version", advice)
    major = int(found[2]) if found[1] == "1" and found[2] else int(found[1])
    return Check(
        "java", "ok" if major >= MINIMUM_JAVA else "missing", str(major), "" if major >= MINIMUM_JAVA else advice
    )


def _catalog(uri: str | None) -> Check:
    try:
        with open_catalog(uri, sql_schema="error") as catalog:  # looking must not create one
            return Check("catalog", "ok", f"{catalog.uri}, {len(catalog.tables())} tables")
    except DeltaError as error:
        status = "failed" if uri else "missing"
        return Check("catalog", status, redact(" ".join(str(error).split())), "dl init --catalog URI creates one")


def _spark(catalog: str | None, master: str | None, endpoint: str | None, conf: list[str]) -> list[Check]:
    if importlib.util.find_spec("pyspark") is None:
        return [Check("session", "failed", "pyspark is not installed", "pip install 'deltalakedb[spark]'")]
    from deltalakedb.cli.doctor_spark import check_spark

    return [Check(**asdict(check)) for check in check_spark(catalog, master, endpoint, conf)]


def _storage(location: str | None, options: dict[str, str] | None) -> Iterator[Check]:
    named = [name for name in _OBJECT_STORE_VARIABLES if os.environ.get(name)]
    yield Check(
        "object store environment", "ok", ", ".join(named) + " set" if named else "none set (local disk needs none)"
    )
    if location is None:
        return
    from deltalakedb.files.reader import FileTxnLogReader

    try:
        latest = FileTxnLogReader(location, options, table=location).latest_version()
        yield Check("location", "ok", f"a Delta table at version {latest}")
    except (DeltaError, OSError) as error:
        advice = "check the path, and credentials by --storage-option or the environment (AWS_*, AZURE_*, GOOGLE_*)"
        yield Check("location", "failed", redact(" ".join(str(error).split())), advice)
