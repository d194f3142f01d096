"""Builds the jar of the Spark bridge with plain javac, and only when a source has changed: `python bridge/build.py`."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
JAR = HERE.parent / "src" / "deltalakedb" / "spark" / "jars" / "deltalakedb-bridge.jar"
# The same cache that Spark itself uses for `spark.jars.packages`: what is there is not loaded twice.
IVY_CACHE = Path(os.environ.get("DL_IVY_CACHE", str(Path.home() / ".ivy2.5.2" / "cache")))
DELTA = (("delta-spark_4.1_2.13", "4.4.0"), ("delta-storage", "4.4.0"))
# What lint says of other people's jars (path, classfile, overrides) is not ours to mend.
LINT = "-Xlint:all,-path,-processing,-classfile,-overrides"
JAVAC = ("--release", "17", "-encoding", "UTF-8", "-g", "-proc:none", "-Werror", LINT)
# Without these javac also compiles sources that it finds in the class path, where they are newer than their classes.
OWN_SOURCES = ("-implicit:none", "-sourcepath", str(SOURCES))
PACKAGE = "io/deltalakedb/"
IVY = """<ivy-module version="2.0"><info organisation="io.deltalakedb" module="bridge"/>
<configurations><conf name="default"/></configurations>
<dependencies>{dependencies}</dependencies></ivy-module>
"""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
MANIFEST = "META-INF/MANIFEST.MF"


def main() -> None:
    """Build the jar if it is not the one of these sources."""
    if is_current():
        return
    javac = find_javac()
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch) / "classes"
        spark = find_spark_jars()
        delta = resolve_delta(spark, Path(scratch))
        classpath = os.pathsep.join([str(spark / "*"), *delta])
        command = [javac, *JAVAC, *OWN_SOURCES, "-cp", classpath, "-d", str(classes), *map(str, sources())]
        run(command, "compiling the bridge")
        pack(classes, Path(scratch) / "bridge.jar")
    print(f"built {JAR.relative_to(HERE.parent)}", file=sys.stderr)


def is_current() -> bool:
    """Whether the jar that is there was built from these sources."""
    if not JAR.is_file():
        return False
    try:
        with zipfile.ZipFile(JAR) as jar:
            return f"Sources-Digest: {digest()}" in jar.read(MANIFEST).decode()
    except (zipfile.BadZipFile, KeyError):
        return False


def sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def digest() -> str:
    """What the jar is made of: the sources, what they were compiled against, and how."""
    known = hashlib.sha256(repr((DELTA, JAVAC, OWN_SOURCES[0])).encode())
    for source in sources():
        known.update(source.relative_to(SOURCES).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return known.hexdigest()[:40]


def find_javac() -> str:
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=f"{home}/bin") if home else None
    javac = javac or shutil.which("javac")
    if javac is None:
        sys.exit(
            "The Spark bridge needs a Java compiler, and there is no javac in PATH or JAVA_HOME: install a JDK 17 "
            "(e.g. `apt install openjdk-17-jdk-headless`) and run `make setup` again."
        )
    return javac


def find_spark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit("The Spark bridge is compiled against pyspark's jars: run this with the Python of .venv (make setup).")
    return Path(spec.origin).parent / "jars"


def resolve_delta(spark: Path, scratch: Path) -> list[str]:
    """Delta's jars, found or loaded by the Ivy that ships with Spark; the main ones, not those of sources or docs."""
    dependency = '<dependency org="io.delta" name="{}" rev="{}" transitive="false" conf="default->master"/>'
    lines = (dependency.format(name, rev) for name, rev in DELTA)
    (scratch / "ivy.xml").write_text(IVY.format(dependencies="".join(lines)))
    ivy = next(iter(sorted(spark.glob("ivy-*.jar"))), None)
    if ivy is None:
        sys.exit(f"pyspark has no Ivy among its jars ({spark}): is the installation whole?")
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-error", "-cache", str(IVY_CACHE)]
    settings = os.environ.get("DL_IVY_SETTINGS")
    command += ["-settings", settings] if settings else []
    found = scratch / "classpath"
    command += ["-ivy", str(scratch / "ivy.xml"), "-types", "jar", "-cachepath", str(found)]
    run(command, "finding Delta's jars (Ivy)")
    return found.read_text().strip().split(os.pathsep)


def run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{what} failed:\n{done.stdout}{done.stderr}")


def pack(classes: Path, scratch: Path) -> None:
    """Write the jar: our classes alone, in order, without times, so that the same sources give the same bytes."""
    entries = {one.relative_to(classes).as_posix(): one for one in classes.rglob("*.class")}
    foreign = sorted(name for name in entries if not name.startswith(PACKAGE))
    if foreign:
        sys.exit(f"the jar would have classes that are not the bridge's ({', '.join(foreign)}): it is not packed")
    manifest = f"Manifest-Version: 1.0\r\nSources-Digest: {digest()}\r\n\r\n"
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr(zipfile.ZipInfo(MANIFEST, LONG_AGO), manifest)
        for name, compiled in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            jar.writestr(entry, compiled.read_bytes())
    JAR.parent.mkdir(parents=True, exist_ok=True)
    # In place of the old one at a stroke: a Spark that runs keeps the file it has opened.
    beside = JAR.with_suffix(".tmp")
    shutil.copyfile(scratch, beside)
    os.replace(beside, JAR)


if __name__ == "__main__":
    main()
