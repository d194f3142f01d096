"""Iceberg's REST Compatibility Kit: its jars from Maven Central, kept in .venv, and one run of it against a server."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridge.build import IVY_CACHE, find_spark_jars, run

ICEBERG = "1.11.0"
TESTS = (
    "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests",
    "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests",
)
KEPT = Path(sys.prefix) / "iceberg-kit"
"""The jars stay here for later runs."""

_JARS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (  # organisation, name, revision, classifiers
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG, ("tests", "test-fixtures")),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, ("", "tests")),
    ("org.apache.iceberg", "iceberg-api", ICEBERG, ("", "tests")),
    ("org.junit.platform", "junit-platform-console-standalone", "1.14.4", ("",)),
    ("org.assertj", "assertj-core", "3.27.7", ("",)),
    ("org.awaitility", "awaitility", "4.3.0", ("",)),
    ("org.mockito", "mockito-core", "4.11.0", ("",)),
    # What the reference server needs, which proves the kit itself.
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.9", ("",)),
    ("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.9", ("",)),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.9", ("",)),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0", ("",)),
)
_FROM_SPARK = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "commons-logging-*.jar")


@dataclass(frozen=True, slots=True)
class KitResult:
    """The outcome of one run: the names of tests by what became of them, and what the run printed."""

    passed: Sequence[str]
    failed: Mapping[str, str]
    """The name of each failed test, and its message."""
    skipped: Sequence[str]
    output: str


def run_kit(scratch: Path, properties: Mapping[str, str], *, tests: Sequence[str] = TESTS) -> KitResult:
    """Run the kit; `rck.local=true` runs it against the reference server. A test is a class, or `class#method`."""
    reports = scratch / "reports"
    settings = [f"-D{key}={value}" for key, value in properties.items()]
    command = ["java", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", *settings]
    command += ["-cp", os.pathsep.join(kit_jars()), "org.junit.platform.console.ConsoleLauncher", "execute"]
    command += ["--disable-banner", "--details=none", f"--reports-dir={reports}"]
    command += [f"--config={key}={value}" for key, value in properties.items()]
    command += [f"--select-{'method' if '#' in test else 'class'}={test}" for test in tests]
    done = subprocess.run(command, capture_output=True, text=True, cwd=scratch)
    return _read_reports(reports, done.stdout + done.stderr)


def kit_jars() -> list[str]:
    """The class path of the kit; the first call downloads the jars."""
    folder = KEPT / hashlib.sha256(repr(_JARS).encode()).hexdigest()[:16]
    with _one_process():
        if not folder.exists():
            shutil.rmtree(KEPT, ignore_errors=True)
            KEPT.mkdir(parents=True)
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                _retrieve(Path(scratch))
                (Path(scratch) / "jars").rename(folder)
    spark = find_spark_jars()
    shared = [str(jar) for pattern in _FROM_SPARK for jar in sorted(spark.glob(pattern))]
    return [*sorted(str(jar) for jar in folder.glob("*.jar")), *shared]


def _retrieve(scratch: Path) -> None:
    """Let the Ivy that ships with Spark fetch the jars into `scratch/jars`."""
    (scratch / "ivy.xml").write_text(_ivy_module())
    ivy = next(iter(sorted(find_spark_jars().glob("ivy-*.jar"))))
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-warn", "-cache", str(IVY_CACHE)]
    settings = os.environ.get("DL_IVY_SETTINGS")
    command += ["-settings", settings] if settings else []
    pattern = f"{scratch}/jars/[artifact]-[revision](-[classifier]).[ext]"
    command += ["-ivy", str(scratch / "ivy.xml"), "-types", "jar", "bundle", "-retrieve", pattern]
    run(command, "finding the jars of the REST Compatibility Kit (Ivy)")


def _ivy_module() -> str:
    root = ET.Element("ivy-module", {"version": "2.0", "xmlns:m": "http://ant.apache.org/ivy/maven"})
    ET.SubElement(root, "info", organisation="io.deltalakedb", module="iceberg-kit")
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(root, "dependencies")
    for organisation, name, revision, classifiers in _JARS:
        about = {"org": organisation, "name": name, "rev": revision, "conf": "default->default"}
        dependency = ET.SubElement(dependencies, "dependency", about)
        for classifier in classifiers:
            extra = {"m:classifier": classifier} if classifier else {}
            ET.SubElement(dependency, "artifact", {"name": name, "type": "jar", "ext": "jar", **extra})
    return ET.tostring(root, encoding="unicode")


def _read_reports(folder: Path, output: str) -> KitResult:
    passed: list[str] = []
    failed: dict[str, str] = {}
    skipped: list[str] = []
    for file in sorted(folder.glob("TEST-junit-jupiter*.xml")):
        for case in ET.parse(file).iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name', '').removesuffix('()')}"
            problem = next((part for kind in ("failure", "error") for part in case.iter(kind)), None)
            if problem is not None:
                failed[name] = problem.get("message") or (problem.text or "")[:500]
            elif case.find("skipped") is not None:
                skipped.append(name)
            else:
                passed.append(name)
    return KitResult(passed, failed, skipped, output)


@contextmanager
def _one_process() -> Iterator[None]:
    """Another process that wants the jars waits until they are there."""
    with Path(f"{KEPT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
