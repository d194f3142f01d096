"""What must hold after every step of a history, and after upkeep at its end: SQL, the files and the model agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from deltalakedb import Catalog
from tests.conformance.catalog_facts import Facts, Located, Mirrored, files_below, open_files, read_facts, rows_in_files
from tests.conformance.catalog_model import Rows, State
from tests.conformance.transacting import ids_in


class Checks:
    """Holds a catalog and its folders against the model's state."""

    def __init__(self, catalog: Catalog, root: Path) -> None:
        self._catalog = catalog
        self._root = root
        self._keys: dict[str, str] = {}
        """The model's identities of tables, by uuid, once they were seen under a name."""
        self._rows: dict[tuple[str, int], Rows] = {}
        """What was read of versions while they were the newest."""
        self._folders: dict[str, Path] = {}
        """The folders of the model's places."""
        self._versions: dict[str, int] = {}
        """The newest versions of tables, by uuid, after the step before."""
        self._mirrored: dict[str, tuple[frozenset[str], Mirrored | None]] = {}
        """What `deltalake` found of a table (uuid), while its log holds these files."""

        self._instants: dict[str, list[str]] = {}
        """The names of the catalog at transactions."""

    def remember(self, other: Checks) -> None:
        """Go on from what others have seen of the same catalog."""
        self._keys, self._rows, self._folders = dict(other._keys), dict(other._rows), dict(other._folders)

    def know(self, keys: Mapping[str, str]) -> None:
        """The model's identities of tables, by uuid."""
        self._keys.update(keys)

    def note_instant(self, txn_id: str, state: State) -> None:
        self._instants[txn_id] = sorted(state.names)

    def look(self) -> Facts:
        return read_facts(self._catalog)

    def key_of(self, uuid: str) -> str | None:
        return self._keys.get(uuid)

    def rows_at(self, uuid: str, version: int, read: Callable[[], Rows]) -> Rows:
        """The rows of a version that was seen; the past does not change."""
        return self._rows[uuid, version] if (uuid, version) in self._rows else read()

    # -- after every step

    def after_step(self, state: State, facts: Facts, *, is_inline: bool) -> None:
        """`is_inline`: the files of what the step changed have it already."""
        self.check_state(state, facts)
        for one in facts.located:
            if one.uuid in facts.registered or one.location_state == "dropped":
                is_changed = self._versions.get(one.uuid) != one.version
                self._check_files(one, is_level=is_inline and is_changed)
        self._versions = {one.uuid: one.version for one in facts.located}

    def check_state(self, state: State, facts: Facts) -> None:
        live = facts.live
        assert set(live) == set(state.names), "the names of the catalog are not the model's"
        for name, table in state.names.items():
            one = live[name]
            assert self._keys.setdefault(one.uuid, table.key) == table.key, f"{name} is another table than it should be"
            assert (one.mode, one.files_owner) == (table.mode, table.owner), name
            assert one.state == "live", name
            self._folders[table.place] = one.folder
            assert self._rows_of(one) == table.rows, f"the rows of {name} are not the model's"
        dropped = sorted((one.name, self._keys.get(one.uuid)) for one in facts.dropped)
        assert dropped == sorted((one.name, one.table.key) for one in state.dropped), "other tables can be undropped"

    def is_state(self, state: State, facts: Facts) -> bool:
        """Whether this is what the catalog holds, as far as names and rows tell."""
        rows = {name: self._rows_of(one) for name, one in facts.live.items()}
        dropped = sorted(one.name for one in facts.dropped)
        return rows == state.rows and dropped == sorted(one.name for one in state.dropped)

    def _rows_of(self, one: Located) -> Rows:
        """Read once for each version: that its files are there is looked at after every step."""
        at = (one.uuid, one.version)
        if at not in self._rows:
            self._rows[at] = tuple(ids_in(self._catalog, one.name))
        return self._rows[at]

    def _check_files(self, one: Located, *, is_level: bool) -> None:
        """Every live file is there, and the mirror, where it has the newest version, says the same as SQL."""
        for path in one.files:
            assert (one.folder / path).exists(), f"a file of {one.name} is gone: {path}"
        if one.mode != "managed":
            return
        mirrored = self._open_files(one)
        if mirrored is None:
            assert one.mirrored_version < 0, f"the log of {one.name} is gone"
            assert not is_level, f"{one.name} is not mirrored"
            return
        assert one.mirrored_version <= mirrored.version <= one.version, f"the log of {one.name} is at another version"
        if is_level:
            assert mirrored.version == one.version, f"{one.name} is not mirrored to its end"
        if mirrored.version == one.version:
            assert mirrored.files == one.files, f"the files of {one.name} are others in its log than in SQL"

    def _open_files(self, one: Located) -> Mirrored | None:
        """A table as `deltalake` opens it; the files of a log never change, so it is opened when there are others."""
        names = frozenset(path.name for path in (one.folder / "_delta_log").glob("*"))
        if one.uuid not in self._mirrored or self._mirrored[one.uuid][0] != names:
            self._mirrored[one.uuid] = names, open_files(one.folder)
        return self._mirrored[one.uuid][1]

    # -- at the end

    def at_end(self, state: State, reconcile: Callable[[], None]) -> None:
        """After upkeep the files have everything, and nothing lies around that nobody owns."""
        reconcile()
        for name, table in state.names.items():
            if table.mode == "managed":
                opened = self._catalog.table(name)
                opened.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
        reconcile()
        facts = self.look()
        self.check_state(state, facts)
        self._check_locations(facts)
        for one in facts.located:
            if one.mode == "managed":
                self._check_files(one, is_level=True)
                rows = self._rows_of(one) if one.uuid in facts.registered else None
                assert rows in (None, rows_in_files(one.folder)), f"{one.name} has other rows in its files"
        for name in state.names:
            report = self._catalog.validate(name)
            assert not report.drifts, f"{name}: {report.drifts}"
        self._check_left_over(state, facts)
        for txn_id, names in self._instants.items():
            assert sorted(self._catalog.at(txn_id).tables()) == names, "the names at an instant are others now"

    def _check_locations(self, facts: Facts) -> None:
        wrong = [
            one for one in facts.located if (one.location_state == "live") != (one.uuid in facts.registered)
            or one.location_state not in ("live", "dropped")
        ]  # fmt: skip
        assert not wrong, f"locations that no table has: {wrong}"
        assert len(facts.live) == len(facts.registered), "a table has no location"

    def _check_left_over(self, state: State, facts: Facts) -> None:
        """Every file is a log, or is named by the head of its table, or lies in a folder that decides for itself."""
        own = {one.folder: one for one in facts.located if one.mode == "managed"}
        others = {one.folder for one in facts.located if one.mode != "managed"}
        others |= {self._folders.get(place, self._root / "elsewhere" / place) for place in state.folders}
        for file in files_below(self._root):
            folder = next((one for one in file.parents if one in own or one in others), None)
            if folder in own and "_delta_log" not in file.parts:
                assert str(file.relative_to(folder)) in self._kept(own[folder]), f"nobody owns {file}"
            else:
                assert folder is not None or self._is_database(file), f"nobody owns {file}"

    def _kept(self, one: Located) -> frozenset[str]:
        if one.location_state == "live":
            return one.files
        sql = f"select distinct a.path from dl_add_files a join dl_locations l on l.table_id = a.table_id where l.table_uuid = '{one.uuid}'"  # noqa: E501
        return frozenset(self._catalog.sql(sql).column("path").to_pylist())

    def _is_database(self, file: Path) -> bool:
        return file.parent == self._root and file.name.startswith("catalog.")
