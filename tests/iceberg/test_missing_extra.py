"""Without PyIceberg only what needs it fails, and the error names the extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
for name in ("pyiceberg", "fastavro"):
    sys.modules[name] = None
import deltalakedb as dl
from deltalakedb.exceptions import MissingExtraError
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.store.names import TableName

schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
with dl.connect("catalog.db", warehouse="lake") as catalog:
    catalog.create_namespace("shop")
    IcebergCatalog(catalog).create_table(TableName("shop", "ice"), {"schema": schema})
    for open_it in (catalog.iceberg, catalog.at(catalog.history("shop.ice")[0]["timestamp"]).iceberg):
        try:
            open_it()
        except MissingExtraError as error:
            print(error)
    assert catalog.validate("shop.ice").drift is None
    catalog.drop_table("shop.ice", purge=True)
    print(catalog.tables())
"""


def test_the_error_names_the_extra_and_the_rest_works(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *errors, tables = done.stdout.splitlines()
    assert len(errors) == 2
    assert all("pip install 'deltalakedb[iceberg]'" in line for line in errors)
    assert tables == "[]"


def test_importing_the_package_loads_neither_pyiceberg_nor_fastavro() -> None:
    script = "import sys, deltalakedb, deltalakedb.cli; print({'pyiceberg', 'fastavro'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
