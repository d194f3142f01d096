"""What a process does in the tests of crashes and of many writers.

Each line it prints is one JSON object; an acknowledged commit is printed only after the call has returned.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import deltalakedb as dl
from deltalakedb.exceptions import CommitFailedError, TableExistsError
from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.rows import adds_from_batch
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.runtime import steps

ACCOUNTS = ("bank.left", "bank.right")


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def kill_at(step: str) -> None:
    """Die at a step as a machine does: nothing is cleaned up. `name#2`: when it is reached for the second time."""
    name, _, times = step.partition("#")
    left = [int(times or 1)]

    def die(reached: str) -> None:
        if reached == name:
            left[0] -= 1
            if left[0] == 0:
                say(killed_at=reached)
                os.kill(os.getpid(), signal.SIGKILL)

    steps.observe(die)


def connect(place: dict[str, Any]) -> dl.Catalog:
    return dl.connect(place["catalog"], warehouse=place["warehouse"], **place.get("config", {}))


def rows(writer: str, number: int, count: int = 3) -> pa.Table:
    return pa.table({"writer": [writer] * count, "number": [number] * count, "row": list(range(count))})


def create(place: dict[str, Any], table: str, properties: dict[str, str] | None = None) -> None:
    """Create the table; who comes second says so."""
    with connect(place) as catalog:
        try:
            catalog.create_table(table, "writer string, number long, row long", properties=properties or {})
            say(created=table)
        except TableExistsError:
            say(exists=table)


def append(place: dict[str, Any], table: str, writer: str, count: int, first: int = 0) -> None:
    """Blind appends with a data file each."""
    with connect(place) as catalog:
        for number in range(first, first + count):
            with catalog.begin(message=f"{writer}/{number}") as tx:
                tx.write(table, rows(writer, number), mode="append")
            say(acknowledged=number, version=tx.result[table])
        say(done=True)


def mix(place: dict[str, Any], table: str, writer: str, count: int, seed: int) -> None:
    """Appends, whole-file deletes, overwrites and compactions at random; every outcome is a success or one conflict."""
    choices = random.Random(seed)
    with connect(place) as catalog:
        for number in range(count):
            operation = choices.choice(["append", "append", "delete", "overwrite", "compact"])
            try:
                with catalog.begin(message=operation) as tx:
                    _propose(tx, table, operation, f"{writer}-{number}", choices)
            except CommitFailedError as error:
                say(conflict=type(error).__name__, operation=operation)
                continue
            say(acknowledged=number, operation=operation, version=tx.result.get(table))
        say(done=True)


def _propose(tx: Any, table: str, operation: str, name: str, choices: random.Random) -> None:
    live = sorted((f for b in tx.table(table).files().to_batches() for f in adds_from_batch(b)), key=lambda f: f.path)
    added = AddFile(f"{name}.parquet", {}, 10, 1, operation != "compact", json.dumps({"numRecords": len(name)}))
    if operation == "append" or not live:
        tx.commit_actions(table, [added])
        return
    gone = live if operation == "overwrite" else choices.sample(live, min(len(live), 2))
    removed = [RemoveFile(f.path, operation != "compact", 1) for f in gone]
    if operation == "compact":
        merged = sum(json.loads(f.stats or "{}")["numRecords"] for f in gone)
        added = AddFile(added.path, {}, 10, 1, False, json.dumps({"numRecords": merged}))
    adds = [] if operation == "delete" else [added]
    read = "table" if operation == "overwrite" else [f.path for f in gone]
    tx.commit_actions(table, [*removed, *adds], read=read, operation=operation.upper())


def transfer(place: dict[str, Any], count: int, seed: int) -> None:
    """Move amounts between two tables, in one transaction each time; a lost race is run again."""
    choices = random.Random(seed)
    with connect(place) as catalog:
        done = 0
        while done < count:
            amount = choices.randrange(1, 50)
            try:
                with catalog.begin() as tx:
                    balances = [_total(tx.table(name)) for name in ACCOUNTS]
                    for name, balance, sign in zip(ACCOUNTS, balances, (-1, 1), strict=True):
                        tx.write(name, pa.table({"amount": [balance + sign * amount]}), mode="overwrite")
            except CommitFailedError as error:
                say(conflict=type(error).__name__)
                time.sleep(choices.random() / 50)
                continue
            done += 1
            say(acknowledged=done, txn_id=tx.txn_id)
        say(done=True)


def watch(place: dict[str, Any], looks: int, seed: int) -> None:
    """Read both tables in one transaction, and as they were at any past instant: the sum never changes."""
    choices = random.Random(seed)
    seen: dict[int, list[int]] = {}
    with connect(place) as catalog:
        started = int(time.time() * 1000)
        for _ in range(looks):
            with catalog.begin() as tx:
                now = [_total(tx.table(name)) for name in ACCOUNTS]
            say(sum=sum(now), how="transaction")
            instant = choices.randint(started, int(time.time() * 1000))
            view = catalog.at(instant)
            then = [_total(view.table(name)) for name in ACCOUNTS]
            say(sum=sum(then), how="at")
            seen[instant] = then
        for instant, before in seen.items():
            view = catalog.at(instant)
            again = [_total(view.table(name)) for name in ACCOUNTS]
            if again != before:
                say(unstable=instant, before=before, again=again)
        say(done=True, instants=len(seen))


def _total(table: Any) -> int:
    return int(sum(table.to_pyarrow_table()["amount"].to_pylist()))


def mirror(place: dict[str, Any]) -> None:
    """What `dl mirror once` does."""
    with (
        connect(place) as catalog,
        Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler,
    ):
        for result in reconciler.once():
            say(table=result.table.full_name, to_version=result.to_version, error=result.error and str(result.error))


def promote(place: dict[str, Any], table: str) -> None:
    with connect(place) as catalog:
        catalog.promote_table(table)
        say(promoted=table)


def detach(place: dict[str, Any], table: str) -> None:
    with connect(place) as catalog:
        catalog.detach_table(table)
        say(detached=table)


def vacuum(place: dict[str, Any], table: str, count: int = 1) -> None:
    """Vacuums that keep the newest version alone."""
    with connect(place) as catalog:
        for _ in range(count):
            try:
                gone = catalog.table(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
            except CommitFailedError as error:
                say(conflict=type(error).__name__)
                continue
            say(deleted=len(gone))
        say(done=True)


def restore(place: dict[str, Any], table: str, count: int, seed: int) -> None:
    """Overwrites, and restores of the last versions; each says which rows it has left."""
    choices = random.Random(seed)
    with connect(place) as catalog:
        for number in range(count):
            try:
                with catalog.begin() as tx:
                    newest = tx.table(table).version()
                    if newest == 0 or choices.random() < 0.4:
                        tx.write(table, rows(f"w{seed}", number), mode="overwrite")
                    else:
                        tx.restore(table, max(0, newest - choices.randint(1, 4)))
            except CommitFailedError as error:
                say(conflict=type(error).__name__)
                continue
            say(version=tx.result.get(table))
        say(done=True)


COMMANDS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (create, append, mix, transfer, watch, mirror, promote, detach, vacuum, restore)
}
