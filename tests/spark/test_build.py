"""bridge/build.py: what it compiles against, and that the jar has the bridge's own classes and no others."""

import shutil
import time
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from deltalakedb.spark import jar
from tests.spark.test_session import build_script

FOREIGN = "io/delta/storage/HadoopFileSystemLogStore"
"""A class of Delta's that one of ours extends."""
SOURCE = """package io.delta.storage;
import org.apache.hadoop.conf.Configuration;
public abstract class HadoopFileSystemLogStore extends LogStore {
  public HadoopFileSystemLogStore(Configuration conf) { super(conf); }
  @Override public CloseableIterator<String> read(org.apache.hadoop.fs.Path path, Configuration conf) { return null; }
  @Override public java.util.Iterator<org.apache.hadoop.fs.FileStatus> listFrom(
      org.apache.hadoop.fs.Path path, Configuration conf) throws java.io.IOException { return null; }
  @Override public org.apache.hadoop.fs.Path resolvePathOnPhysicalStorage(
      org.apache.hadoop.fs.Path path, Configuration conf) { return path; }
  protected org.apache.hadoop.fs.Path createTempPath(org.apache.hadoop.fs.Path path) { return path; }
}
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The build, with a jar of its own."""
    made = build_script()
    monkeypatch.setattr(made, "HERE", tmp_path / "again" / "bridge")
    monkeypatch.setattr(made, "JAR", tmp_path / "again" / "bridge.jar")
    return made


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A jar of sources as Delta publishes them, newer than any class: javac would rather compile it."""
    made = tmp_path / "delta-storage-sources.jar"
    with zipfile.ZipFile(made, "w") as packed:
        packed.writestr(zipfile.ZipInfo(f"{FOREIGN}.java", time.localtime()[:6]), SOURCE)
    return made


def put_on_class_path(script: ModuleType, monkeypatch: pytest.MonkeyPatch, more: Path) -> None:
    resolve = script.resolve_delta
    monkeypatch.setattr(script, "resolve_delta", lambda *arguments: [str(more), *resolve(*arguments)])


def test_the_jar_has_the_bridge_and_nothing_else() -> None:
    with zipfile.ZipFile(jar.JAR) as packed:
        names = packed.namelist()
    assert len(names) > 20
    assert [name for name in names if not name.startswith("io/deltalakedb/")] == ["META-INF/MANIFEST.MF"]


def test_sources_in_the_class_path_are_not_compiled(
    script: ModuleType, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_class_path(script, monkeypatch, sources)
    script.main()
    assert script.JAR.read_bytes() == jar.JAR.read_bytes()


def test_a_class_that_is_not_ours_is_not_packed(
    script: ModuleType, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With javac's own habits the sources above are compiled, and end up among our classes."""
    put_on_class_path(script, monkeypatch, sources)
    monkeypatch.setattr(script, "OWN_SOURCES", ("-Xdiags:compact",))
    with pytest.raises(SystemExit, match=f"not the bridge's .{FOREIGN}.class.: it is not packed"):
        script.main()
    assert not script.JAR.exists()


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>io.delta</groupId><artifactId>{name}</artifactId><version>{version}</version></project>
"""
SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers>
<ibiblio name="here" m2compatible="true" root="{root}"/></resolvers></ivysettings>
"""


def test_a_fresh_machine_resolves_the_main_jars_alone(
    script: ModuleType, sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From a repository that also has sources and documentation, as Maven Central has them."""
    known = {Path(path).name: Path(path) for path in script.resolve_delta(script.find_spark_jars(), tmp_path)}
    for name, version in script.DELTA:
        folder = tmp_path / "repository" / "io" / "delta" / name / version
        folder.mkdir(parents=True)
        (folder / f"{name}-{version}.pom").write_text(POM.format(name=name, version=version))
        shutil.copy(known[f"{name}-{version}.jar"], folder)
        for kind in ("sources", "javadoc"):
            shutil.copy(sources, folder / f"{name}-{version}-{kind}.jar")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=(tmp_path / "repository").as_uri()))
    monkeypatch.setenv("DL_IVY_CACHE", str(tmp_path / "fresh"))
    monkeypatch.setenv("DL_IVY_SETTINGS", str(settings))
    fresh = build_script()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = [Path(path) for path in fresh.resolve_delta(fresh.find_spark_jars(), scratch)]
    assert sorted(path.name for path in found) == sorted(f"{name}-{version}.jar" for name, version in script.DELTA)
    assert all(path.is_relative_to(tmp_path / "fresh") for path in found)
    monkeypatch.setattr(fresh, "HERE", script.HERE)
    monkeypatch.setattr(fresh, "JAR", script.JAR)
    fresh.main()
    assert fresh.JAR.read_bytes() == jar.JAR.read_bytes()
