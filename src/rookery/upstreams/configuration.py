"""What the files of every directory in use say, kept current. What was good stays when a file breaks."""

from collections.abc import Callable, Mapping, Set
from pathlib import Path

from rookery.system.filewatch import signature
from rookery.upstreams.definition import Problem
from rookery.upstreams.dialects import Parsed
from rookery.upstreams.reading import File, Read, read
from rookery.upstreams.sources import Found, files_of, merge


class Configuration:
    """`environment` is what placeholders are filled from. `grown` is called when other directories are in use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.grown: Callable[[], None] = lambda: None
        self._environment = environment
        self._files: dict[Path | None, list[File]] = {}
        self._found: dict[Path | None, Found] = {}
        self._reads: dict[Path, Read] = {}
        self._concerned: dict[Path, set[Path]] = {}
        self._signatures: dict[Path, object] = {}

    def found(self, directory: Path | None) -> Found:
        """The servers of a directory, None for those of everywhere; its files are read when it is first asked for."""
        directory = directory and directory.resolve()
        if directory not in self._found:
            self._files[directory] = files_of(directory)
            for file in self._files[directory]:
                if file.path not in self._reads:
                    self._take(read(file, self._environment))
            self._found[directory] = self._merged(directory)
            self.grown()
        return self._found[directory]

    def forget(self, directory: Path) -> None:
        """It is no longer in use; files that others use too stay known."""
        directory = directory.resolve()
        self._found.pop(directory, None)
        gone = {file.path for file in self._files.pop(directory, [])}
        for path in gone - {file.path for files in self._files.values() for file in files}:
            del self._reads[path], self._concerned[path]
        left = self.files()
        self._signatures = {path: known for path, known in self._signatures.items() if path in left}
        self.grown()

    def files(self) -> set[Path]:
        """All files whose change matters, those that others name or link to among them."""
        return set[Path]().union(*self._concerned.values())

    def touched(self, directory: Path | None) -> set[Path]:
        """Those of a directory that have changed since they were read; none if it is not in use."""
        files = self._files.get(directory and directory.resolve(), [])
        concerned = set[Path]().union(*(self._concerned[file.path] for file in files))
        return {path for path in concerned if signature(path) != self._signatures.get(path)}

    def refresh(self, files: Set[Path] | None = None) -> list[Path | None]:
        """Read these files again, or all; answers the directories for which something else is found now."""
        stale = {path for path, concerned in self._concerned.items() if files is None or files & concerned}
        for path in stale:
            self._take(kept(self._reads[path], read(self._reads[path].file, self._environment)))
        changed = list[Path | None]()
        for directory, before in list(self._found.items()):
            if any(file.path in stale for file in self._files[directory]):
                self._found[directory] = self._merged(directory)
                changed += [directory] if self._found[directory] != before else []
        return changed

    def _take(self, one: Read) -> None:
        self._reads[one.file.path] = one
        self._concerned[one.file.path] = concerned = _concerning(one)
        # Whoever watches the files hears of what happens before this.
        self._signatures |= {path: signature(path) for path in concerned}

    def _merged(self, directory: Path | None) -> Found:
        return merge(self._reads[file.path] for file in self._files[directory])


def kept(old: Read, new: Read) -> Read:
    """The new reading of a file, with what the old one had where the new one is broken."""
    if new.failure is not None:
        parsed = Parsed(old.parsed.definitions, old.parsed.off, old.parsed.failed, permissions=old.parsed.permissions)
        return Read(new.file, parsed, new.failure, old.named | new.named)
    for name in new.parsed.failed & (old.parsed.definitions.keys() | old.parsed.off.keys()):
        if name in old.parsed.off:
            new.parsed.off[name] = old.parsed.off[name]
            continue
        before = new.parsed.definitions[name] = old.parsed.definitions[name]
        message = f'the server "{name}" goes on as it was defined before'
        new.parsed.problems.append(Problem(before.source.path, before.source.line, message, "", name, note=True))
    return new


def _concerning(one: Read) -> set[Path]:
    """The files to watch for one. The user's own may be links; then both the link and what it leads to count."""
    files = {one.file.path, *one.named}
    if one.file.root is not None:
        return files
    return {path for file in files for path in (file.parent.resolve() / file.name, file.resolve())}
