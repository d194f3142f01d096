"""Plans are sound, whatever the table went through: no file with a matching row is pruned, no delete is forgotten."""

import itertools
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.store.names import TableName
from tests.fixtures.sizes import sized
from tests.iceberg.planning.columns import KINDS, PROMOTIONS
from tests.iceberg.planning.judge import Place, Test, draw_condition, draw_transform_test, same, visible
from tests.iceberg.planning.lake import Lake

NAME = TableName("lake", "t")
CONDITIONS = sized(25, 60)


class History:
    """A table with a random history, and the rows that are alive in it."""

    def __init__(self, folder: Path, seed: int, version: int) -> None:
        self.random = Random(seed)
        kinds = self.random.sample(sorted(KINDS), 5)
        self.lake = Lake(folder, {f"c{n}": kind for n, kind in enumerate(kinds)}, version=version, seed=seed)
        self.dead: set[Place] = set()
        self.dead_by_position: dict[str, set[int]] = {}
        self.names = (f"n{number}" for number in itertools.count())

    def live(self) -> dict[Place, dict[int, Any]]:
        rows = {(file.path, n): row for file in self.lake.files for n, row in enumerate(file.rows)}
        return {place: row for place, row in rows.items() if place not in self.dead}

    def grow(self, steps: int) -> None:
        changes = [self.append] * 3 + [self.evolve, self.partition, self.rewrite, self.remove]
        if self.lake.version == 2:
            changes += [self.delete_positions] * 2
        if self.lake.version == 3:
            changes += [self.delete_vector] * 2
        if self.lake.version > 1:
            changes += [self.delete_equal]
        self.append()
        for _ in range(steps):
            self.random.choice(changes)()

    def append(self) -> None:
        self.lake.append(self.lake.draw_rows(self.random.randint(1, 12)))

    def evolve(self) -> None:
        lake, random = self.lake, self.random
        used = {column for spec in lake.specs for _, column, _ in spec}
        number = random.choice(list(lake.columns))
        name, kind = lake.columns[number]
        choice = random.random()
        if choice < 0.4 or kind not in PROMOTIONS:
            lake.add_column(next(self.names), random.choice(sorted(KINDS)))
        elif choice < 0.8:
            lake.change_column(number, name, PROMOTIONS[kind])
        if choice > 0.6 and number not in used and len(lake.columns) > 3:
            lake.drop_column(number)
        elif choice > 0.5:
            lake.change_column(number, next(self.names), lake.columns[number][1])

    def partition(self) -> None:
        columns = self.random.sample(list(self.lake.columns), self.random.randint(0, 2))
        fields = [(n, self.random.choice(KINDS[self.lake.columns[n][1]].transforms)) for n in columns]
        self.lake.partition_by(*fields)

    def rewrite(self) -> None:
        if self.lake.files:
            self.lake.rewrite()

    def remove(self) -> None:
        if len(self.lake.files) > 2:
            self.lake.remove(self.random.sample(self.lake.files, 1))

    def delete_positions(self) -> None:
        if not self.lake.files:
            return
        first = self.random.choice(self.lake.files)
        same_partition = [
            f for f in self.lake.files if (f.spec_id, repr(f.partition)) == (first.spec_id, repr(first.partition))
        ]
        files = self.random.sample(same_partition, min(len(same_partition), self.random.randint(1, 3)))
        chosen = {file.path: self._some_positions(file.path, len(file.rows)) for file in files}
        self.lake.delete_positions(files, chosen)

    def delete_vector(self) -> None:
        if self.lake.files:
            file = self.random.choice(self.lake.files)
            self._some_positions(file.path, len(file.rows))
            self.lake.delete_vector(file, sorted(self.dead_by_position[file.path]))

    def _some_positions(self, path: str, count: int) -> list[int]:
        positions = sorted(self.random.sample(range(count), self.random.randint(1, count)))
        self.dead_by_position.setdefault(path, set()).update(positions)
        self.dead |= {(path, position) for position in positions}
        return positions

    def delete_equal(self) -> None:
        lake = self.lake
        live = self.live()
        if not live:
            return
        picked = self.random.sample(sorted(live), min(len(live), 2))
        columns = self.random.sample(list(lake.columns), self.random.randint(1, 2))
        spec_id = len(lake.specs) - 1
        partition_of = live[picked[0]]
        partition = repr(lake.partition_of(partition_of, spec_id))
        lake.delete_equal(columns, [live[place] for place in picked], partition_of)
        for file in lake.files:
            if not lake.specs[spec_id] or (file.spec_id, repr(file.partition)) == (spec_id, partition):
                gone = [n for n, row in enumerate(file.rows) if any(same(row, live[p], columns) for p in picked)]
                self.dead |= {(file.path, n) for n in gone}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("seed", range(sized(4, 120)))
def test_a_reader_of_the_plan_sees_every_live_row_that_matches(
    catalog: Catalog, tmp_path: Path, version: int, seed: int
) -> None:
    history = History(tmp_path / "t", seed * 3 + version, version)
    service = PlanService(catalog)
    pruned = 0
    for _ in range(3):
        history.grow(history.random.randint(2, 5))
        everything = service.plan(NAME, 7, history.lake.metadata(), {})
        assert visible(everything, history.lake) == set(history.live())
        for number in range(CONDITIONS // 3):
            draw = draw_transform_test if number % 5 == 4 else draw_condition
            condition, test = draw(history.random, history.lake)
            pruned += _check(service, history, condition, test)
    assert pruned > 0


def _check(service: PlanService, history: History, condition: Any, test: Test) -> int:
    answer = service.plan(NAME, 7, history.lake.metadata(), {"filter": condition})
    assert answer["status"] == "completed", answer
    live = history.live()
    matching = {place for place, row in live.items() if test(row)}
    seen = visible(answer, history.lake)
    assert matching <= seen, f"{condition} lost {[live[place] for place in matching - seen]}"
    assert seen <= set(live), f"{condition} forgot a delete"
    return len(history.lake.files) - len(answer["file-scan-tasks"])
