"""`dl doctor`: checks what works on this machine, and says what to install."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, StorageOption, command, open_catalog, storage_options
from deltalakedb.exceptions import ConfigError, DeltaError, StoreError, redact

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
    """One check: `ok`, `missing` (an optional part is not installed) or `failed`."""

    name: str
    status: str
    found: str
    advice: str = ""


def add_to(app: typer.Typer) -> None:
    command(app, "doctor", doctor)


def doctor(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="A folder to explain: who manages the table in it, and what to do."),
    ] = None,
    catalog: CatalogOption = None,
    location: Annotated[
        str | None, typer.Option("--location", metavar="PATH", help="A table or folder to check access to.")
    ] = None,
    storage_option: StorageOption = None,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Start a Spark session as a job does, and check the driver and the executors."),
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="With --spark: the cluster, as spark://HOST:7077.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="With --spark: the address of `dl serve --bridge`; the token is in DL_TOKEN.",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="With --spark: a Spark setting; repeatable."),
    ] = None,
) -> None:
    """Check engine, drivers, Java, Spark and object stores, and print what to install. With PATH: explain a folder."""
    options = storage_options(storage_option)
    if path is not None:
        checks = [_folder(path, catalog, options)]
    else:
        checks = [*_packages(), _java(), *_catalog(catalog), *_storage(location, options)]
        if spark:
            checks += _spark(catalog, master, endpoint, conf or [])
    rows = [asdict(check) for check in checks]
    output.emit(
        rows, lambda: output.table(("check", "status", "found", "what to do"), [tuple(r.values()) for r in rows])
    )
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)


def _folder(path: str, uri: str | None, options: dict[str, str] | None) -> Check:
    from deltalakedb.mirror.diagnosis import diagnose

    try:
        with open_catalog(uri, sql_schema="error", mirror_mode="off") as catalog:
            diagnosis = diagnose(path, options, catalog.store)
    except (ConfigError, StoreError) as error:
        if uri is not None:
            output.warn(f"the folder is explained by its files alone: {error}")
        diagnosis = diagnose(path, options)
    return Check(diagnosis.kind, "failed" if diagnosis.is_wrong else "ok", diagnosis.found, diagnosis.advice)


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
    match = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', run.stderr + run.stdout)
    if match is None:
        return Check("java", "missing", f"{program} does not tell its version", advice)
    major = int(match[2]) if match[1] == "1" and match[2] else int(match[1])
    return Check(
        "java", "ok" if major >= MINIMUM_JAVA else "missing", str(major), "" if major >= MINIMUM_JAVA else advice
    )


def _catalog(uri: str | None) -> Iterator[Check]:
    try:
        with open_catalog(uri, sql_schema="error") as catalog:  # a check must not create a catalog
            yield Check("catalog", "ok", f"{catalog.uri}, {len(catalog.tables())} tables")
            yield _rights(catalog.config.rights_mode)
    except DeltaError as error:
        status = "failed" if uri else "missing"
        yield Check("catalog", status, redact(" ".join(str(error).split())), "dl init --catalog URI creates one")


def _rights(mode: str) -> Check:
    if mode == "off":
        return Check("rights", "ok", "off: who has a token of `dl serve` may do everything")
    return Check(
        "rights",
        "ok",
        "on, behind `dl serve` only",
        "give the database's login or file, and the tables' storage, only to those who may do everything",
    )


def _spark(catalog: str | None, master: str | None, endpoint: str | None, conf: Sequence[str]) -> list[Check]:
    """The checks of a new session, started as a job would; or why none can be started."""
    if importlib.util.find_spec("pyspark") is None:
        return [Check("session", "failed", "pyspark is not installed", "pip install 'deltalakedb[spark]'")]
    import deltalakedb.spark as dls

    settings: dict[str, Any] = {"spark.app.name": "dl doctor", "spark.ui.showConsoleProgress": "false"}
    settings |= dict(_parse_setting(text) for text in conf)
    settings |= {"spark.master": master} if master else {}
    try:
        spark = dls.session(None if endpoint else catalog, endpoint=endpoint, **settings)
    except DeltaError as error:
        return [Check("session", "failed", redact(" ".join(str(error).split())), "do what the message says")]
    except Exception as error:  # Spark's own: any failure is a finding
        message = next(iter(str(error).splitlines()), type(error).__name__)
        advice = "see that the master is reached, and the driver from the workers (spark.driver.host)"
        return [Check("session", "failed", redact(message), advice)]
    try:
        return [Check(**asdict(check)) for check in dls.doctor(spark)]
    finally:
        spark.stop()


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise typer.BadParameter(f"{text!r} is no setting of Spark: it is spark.KEY=VALUE", param_hint="--conf")
    return key, value


def _storage(location: str | None, options: dict[str, str] | None) -> Iterator[Check]:
    variables = [name for name in _OBJECT_STORE_VARIABLES if os.environ.get(name)]
    yield Check(
        "object store environment",
        "ok",
        ", ".join(variables) + " set" if variables else "none set (local disk needs none)",
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
