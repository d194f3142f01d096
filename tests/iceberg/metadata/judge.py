"""Iceberg's own Java as the judge of metadata: a small program beside its jar, which applies requests to metadata."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.build import IVY, IVY_CACHE, find_javac, find_spark_jars, run

ICEBERG = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
SOURCE = Path(__file__).parents[1] / "java" / "MetadataJudge.java"
KEPT = Path(sys.prefix) / "iceberg-judge"
"""The compiled program, and the name of the jar that it was compiled against, for later runs."""

CONFLICTS = ("CommitFailedException", "RetryableValidationException")
"""Java's exceptions that a client may try again after; all others mean that the request is refused."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Java says of a request: the metadata, or the exception."""

    result: Any
    error: str = ""
    message: str = ""


class Judge:
    """The running program; it ends when this process does."""

    def __init__(self) -> None:
        command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", _class_path()]
        self._process = subprocess.Popen(
            [*command, "MetadataJudge"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, question: str, **fields: object) -> Verdict:
        """The answer to one question; see `answer` in the Java program for those that there are."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": question, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Verdict(answer.get("result"), answer.get("error", ""), answer.get("message", ""))

    def table(
        self,
        base: Mapping[str, Any] | None,
        updates: Sequence[Mapping[str, Any]],
        requirements: Sequence[Mapping[str, Any]] = (),
        *,
        location: str | None = None,
    ) -> Verdict:
        """A commit to a table; `location` is where the base's file is."""
        asked: dict[str, object] = {"base": base, "updates": updates, "requirements": requirements}
        return self.ask("table", **asked, location=location)

    def view(
        self,
        base: Mapping[str, Any],
        updates: Sequence[Mapping[str, Any]],
        requirements: Sequence[Mapping[str, Any]] = (),
    ) -> Verdict:
        """A commit to a view."""
        return self.ask("view", base=base, updates=updates, requirements=requirements)

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def comparable(metadata: Any) -> Any:
    """Metadata without the order of what Java keeps in hash tables."""
    metadata = comparable_view(metadata)
    for name in ("statistics", "partition-statistics"):
        metadata[name] = sorted(metadata.get(name, []), key=lambda file: int(file["snapshot-id"]))
    return metadata


def comparable_view(metadata: Any) -> Any:
    """Metadata with the identifier fields in order, and with properties also if there are none."""
    metadata = {"properties": {}, **json.loads(json.dumps(metadata))}
    for schema in [*metadata["schemas"], metadata.get("schema", {})]:
        schema["identifier-field-ids"] = sorted(schema.get("identifier-field-ids", []))
    return metadata


def _class_path() -> str:
    """The program's classes, Iceberg's jar and what it needs; the first call downloads the jar and compiles."""
    digest = hashlib.sha256(repr(ICEBERG).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    folder = KEPT / digest
    with _one_process():
        if not folder.exists() or not Path((folder / "jar").read_text()).exists():
            shutil.rmtree(KEPT, ignore_errors=True)
            KEPT.mkdir(parents=True)
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                _compile(made, _find_jar(Path(scratch)))
                made.rename(folder)
    jar = (folder / "jar").read_text()
    logging = [str(jar) for jar in find_spark_jars().glob("slf4j-api-*.jar")]
    return os.pathsep.join([str(folder), jar, *logging])


def _find_jar(scratch: Path) -> str:
    """Iceberg's jar in the cache of Spark's Ivy, which loads it from Maven Central if it is not there."""
    organisation, name, revision = ICEBERG
    dependency = f'<dependency org="{organisation}" name="{name}" rev="{revision}" transitive="false"/>'
    (scratch / "ivy.xml").write_text(IVY.format(dependencies=dependency))
    ivy = next(iter(sorted(find_spark_jars().glob("ivy-*.jar"))))
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-error", "-cache", str(IVY_CACHE)]
    settings = os.environ.get("DL_IVY_SETTINGS")
    command += ["-settings", settings] if settings else []
    found = scratch / "class-path"
    command += ["-ivy", str(scratch / "ivy.xml"), "-types", "jar", "-cachepath", str(found)]
    run(command, "finding Iceberg's jar (Ivy)")
    return found.read_text().strip()


def _compile(folder: Path, jar: str) -> None:
    run([find_javac(), "--release", "17", "-cp", jar, "-d", str(folder), str(SOURCE)], "compiling the judge")
    (folder / "jar").write_text(jar)


@contextmanager
def _one_process() -> Iterator[None]:
    """Another process that wants the program waits until it is there."""
    with Path(f"{KEPT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
