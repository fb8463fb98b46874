"""Which files are nobody's to read through a tool: `.git` in both forms, keys, credentials, and workspaces inside."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from itertools import product

# Source code is about credentials more often than it has some.
_SOURCE = (
    "c",
    "cc",
    "cpp",
    "cs",
    "go",
    "h",
    "java",
    "js",
    "jsx",
    "kt",
    "md",
    "php",
    "py",
    "rb",
    "rs",
    "swift",
    "ts",
    "tsx",
)

FILES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd"),
    *(".git-credentials", "credentials*", ".credentials*", "auth.json", "opencode.json", "opencode.jsonc"),
    *("id_*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
)
ALLOWED = (
    *(".env.example", ".env.sample", ".env.template", ".env.dist", "*.example.env", "*.pub"),
    *(f"{stem}*.{suffix}" for stem, suffix in product(("credentials", "id_"), _SOURCE)),
)
FOLDERS = (".ssh", ".aws", ".gnupg")
# So many folders, whose names are together no longer than that.
_REMEMBERED = 4096
# Also under the short name that Windows gives it.
_GIT = (".git", "git~1")


@dataclass(frozen=True)
class Denied:
    """Patterns for the last name of a file, exceptions to them, and names of folders that are denied with all in them.

    `workspaces` are the roots of others, as names from this root. `.git` is denied whatever is set.
    """

    files: tuple[str, ...] = FILES
    allowed: tuple[str, ...] = ALLOWED
    folders: tuple[str, ...] = FOLDERS
    workspaces: tuple[tuple[str, ...], ...] = ()

    def folder(self, names: Sequence[str]) -> str:
        """Why nothing at or beneath these names may be seen, or nothing."""
        found = _folded(names)
        if any(name in _GIT for name in found):
            return "it belongs to git"
        if any(self._folders.fullmatch(name) for name in found):
            return "it is kept for secrets"
        if any(found[: len(inner)] == inner for inner in self._workspaces):
            return "it belongs to another workspace"
        return ""

    def file(self, names: Sequence[str]) -> str:
        """Why a file at these names may not be read, or nothing."""
        text = "/".join(names)
        if not self.workspaces and (text in self._fine or self._is_fine(text)):
            return ""
        name = "/".join(_folded(names[-1:]))
        if self._files.fullmatch(name) and not self._allowed.fullmatch(name):
            return "files of this name hold secrets"
        return self.folder(names)

    def entry(self, names: Sequence[str], *, is_folder: bool) -> str:
        """The same for an entry of a folder that is not denied itself: most often its own name is enough."""
        seen = names if self.workspaces else names[-1:]
        return self.folder(seen) if is_folder else self.file(seen)

    def among(self, folder: str, names: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
        """Of all names in one folder, which is not denied itself, the denied ones, each with why.

        `types` tells which of them are folders.
        """
        text = "/".join(names)
        if (text in self._fine or self._is_fine(text)) and not (self.workspaces and self._is_near_workspace(folder)):
            return {}
        way = folder.split("/") if folder else []
        told = ((name, self.entry((*way, name), is_folder=types.get(name) == "folder")) for name in names)
        return {name: why for name, why in told if why}

    def _is_fine(self, text: str) -> bool:
        """Whether it is plain to see that none of the names is denied. Folders seldom change: it is remembered."""
        if self._has_suspect(text):
            return False
        if len(self._fine) >= _REMEMBERED:
            self._fine.clear()
        if len(text) < _REMEMBERED:
            self._fine.add(text)
        return True

    def _has_suspect(self, text: str) -> bool:
        lower = f"/{text.lower()}/"
        begins, ends = self._suspect
        return not text.isascii() or begins.search(lower) is not None or ends.search(lower) is not None

    @cached_property
    def _fine(self) -> set[str]:
        return set()

    def _is_near_workspace(self, folder: str) -> bool:
        way = _folded(folder.split("/")) if folder else []
        return any(inner[:-1] == way for inner in self._workspaces)

    @cached_property
    def _suspect(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """They find, in names with a slash before and after each, how a denied one begins and how one ends.

        Two are much faster than one: all that each of them looks for begins with the same character.
        """
        patterns = {_fold(one) for one in (*_GIT, *self.files, *self.folders)}
        heads = {one: re.split(r"[*?[]", one, maxsplit=1)[0] for one in patterns}
        tails = {one: re.split(r"[*?\]]", one)[-1] for one in patterns if not heads[one]}
        begins, ends = ("|".join(map(re.escape, sorted({*some.values()} - {""}))) for some in (heads, tails))
        if not all(tails.values()):
            begins = ""
        return re.compile(f"/(?:{begins})"), re.compile(rf"(?:{ends or '(?!)'})[. ]*/")

    @cached_property
    def _files(self) -> re.Pattern[str]:
        return _pattern(self.files)

    @cached_property
    def _allowed(self) -> re.Pattern[str]:
        return _pattern(self.allowed)

    @cached_property
    def _folders(self) -> re.Pattern[str]:
        return _pattern(self.folders)

    @cached_property
    def _workspaces(self) -> list[list[str]]:
        return [_folded(inner) for inner in self.workspaces if inner]


def _folded(names: Sequence[str]) -> list[str]:
    """The names as a file system that knows no case, and a reader that sees no difference, would take them."""
    return [part for name in names for part in _fold(name).split("/")]


def _fold(name: str) -> str:
    if name.isascii():
        return name.lower().rstrip(". ")
    seen = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return seen.casefold().rstrip(". ")


def _pattern(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(_fold(one)) for one in patterns) or r"(?!)")
