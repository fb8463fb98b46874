"""Rules for files that no tool may read: `.git`, keys, credentials and workspaces inside this one."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from itertools import product

# Source files named after credentials rarely contain any.
_SOURCE_SUFFIXES = (
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

# The formats in which programs keep credentials: a file such as `credentials_schema.sql` contains none.
_DATA_SUFFIXES = (
    *("json", "jsonc", "yml", "yaml", "toml", "ini", "cfg", "conf", "xml", "csv", "txt", "properties", "enc"),
    *("db", "sqlite", "sqlite3"),
)
_STAGES = ("prod", "production", "staging", "dev", "development", "test", "local", "live", "bak", "backup", "old")
_COPIES = ("~", ".bak", ".backup", ".old", ".orig", ".save")
_EXAMPLES = ("example", "sample", "template", "schema")
_SSH_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
# Certificates without their keys. Not all names with these beginnings: `ca-cert-key.pem` is a key.
_CERTIFICATES = (
    "cacert.pem",
    "ca.pem",
    "ca-bundle.pem",
    *(f"ca-{name}.pem" for name in ("cert", "certs", "cert[0-9]", "certificate", "certificates")),
    *(f"ca-{name}.pem" for name in ("chain", "cert-chain", "chain[0-9]")),
    "cert.pem",
    "chain.pem",
    "fullchain.pem",
    "*.crt.pem",
    "dhparam*.pem",
)


def _without_extension(beginning: str) -> tuple[str, ...]:
    """Return patterns for longer names that have this beginning and contain no dot."""
    return tuple(beginning + "[!.]" * length for length in range(1, 41))


DENIED_FILES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd"),
    *(".git-credentials", "auth.json", "opencode.json", "opencode.jsonc"),
    *("credentials", ".credentials", *(f"credentials*.{stage}" for stage in _STAGES)),
    *_without_extension("credentials"),
    *(f"{dot}credentials*.{suffix}" for dot, suffix in product(("", "."), _DATA_SUFFIXES)),
    *(f"{dot}credentials*{copy}" for dot, copy in product(("", "."), _COPIES)),
    *(key for name in _SSH_KEYS for key in (name, f"{name}[-_.]*")),
    # Keys that a person has named: `id_github`. With an extension it is usually another file: `id_card.svg`.
    *(*_without_extension("id_"), *(f"id_*{copy}" for copy in _COPIES)),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *(f"*.{suffix}{copy}" for suffix, copy in product(("pem", "key"), ("~", ".bak", ".old"))),
)
ALLOWED_FILES = (
    *(f".env{stage}.{kind}" for stage, kind in product(("", ".*"), ("example", "sample", "template", "dist"))),
    *(f"{stem}.env" for stem in ("example", "sample", "template", "*.example", "*.sample", "*.template")),
    *(f"credentials[-_.]{kind}.{suffix}" for kind, suffix in product(_EXAMPLES, _DATA_SUFFIXES)),
    *(".env.defaults", "*.pub", *_CERTIFICATES),
    *(f"id_*.{suffix}" for suffix in _SOURCE_SUFFIXES),
)
DENIED_FOLDERS = (".ssh", ".aws", ".gnupg")
# The limit of cached texts, and of the length of each: all names in a folder, or a path.
_MAX_CACHED = 4096
# The second is the short name that Windows gives it.
_GIT_NAMES = (".git", "git~1")


@dataclass(frozen=True)
class DenyRules:
    """Patterns for file names, exceptions to them, and names of folders that are denied with all their content.

    `workspaces` are the roots of other workspaces, as names from this root. `.git` is always denied.
    """

    files: tuple[str, ...] = DENIED_FILES
    allowed: tuple[str, ...] = ALLOWED_FILES
    folders: tuple[str, ...] = DENIED_FOLDERS
    workspaces: tuple[tuple[str, ...], ...] = ()

    def folder_denial(self, names: Sequence[str]) -> str:
        """Return why nothing at or beneath this path may be accessed; empty if it may."""
        folded = _fold_names(names)
        if any(name in _GIT_NAMES for name in folded):
            return "it belongs to git"
        if any(self._folders.fullmatch(name) for name in folded):
            return "the folder is for secrets"
        if any(folded[: len(inner)] == inner for inner in self._workspaces):
            return "it belongs to another workspace"
        return ""

    def file_denial(self, names: Sequence[str]) -> str:
        """Return why the file at this path may not be read; empty if it may."""
        text = "/".join(names)
        if not self.workspaces and (text in self._allowed_cache or self._is_clearly_allowed(text)):
            return ""
        name = "/".join(_fold_names(names[-1:]))
        if self._files.fullmatch(name) and not self._allowed.fullmatch(name):
            return "files with this name usually contain secrets"
        return self.folder_denial(names)

    def entry_denial(self, names: Sequence[str], *, is_folder: bool) -> str:
        """Return the same for an entry of a folder that is not denied itself: usually its own name is enough."""
        relevant = names if self.workspaces else names[-1:]
        return self.folder_denial(relevant) if is_folder else self.file_denial(relevant)

    def find_denied(self, folder: str, names: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
        """Return the denied names in a folder that is not denied itself, each with the reason.

        `types` says which of them are folders.
        """
        text = "/".join(names)
        if (text in self._allowed_cache or self._is_clearly_allowed(text)) and not (
            self.workspaces and self._is_near_workspace(folder)
        ):
            return {}
        parents = folder.split("/") if folder else []
        reasons = ((name, self.entry_denial((*parents, name), is_folder=types.get(name) == "folder")) for name in names)
        return {name: reason for name, reason in reasons if reason}

    def _is_clearly_allowed(self, text: str) -> bool:
        """Return whether a fast check rules out that any of the names is denied. Positive results are cached."""
        if self._has_suspect(text):
            return False
        if len(self._allowed_cache) >= _MAX_CACHED:
            self._allowed_cache.clear()
        if len(text) < _MAX_CACHED:
            self._allowed_cache.add(text)
        return True

    def _has_suspect(self, text: str) -> bool:
        """Return whether any name begins or ends like a denied one, or is not ASCII."""
        lowered = f"/{text.lower()}/"
        begins, ends = self._suspect_patterns
        return not text.isascii() or begins.search(lowered) is not None or ends.search(lowered) is not None

    @cached_property
    def _allowed_cache(self) -> set[str]:
        return set()

    def _is_near_workspace(self, folder: str) -> bool:
        parents = _fold_names(folder.split("/")) if folder else []
        return any(inner[:-1] == parents for inner in self._workspaces)

    @cached_property
    def _suspect_patterns(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Two patterns for names with a slash before and after each: how a denied name begins, and how one ends.

        Two are much faster than one: all alternatives of each begin with the same character.
        """
        patterns = {_fold_name(pattern) for pattern in (*_GIT_NAMES, *self.files, *self.folders)}
        heads = {pattern: re.split(r"[*?[]", pattern, maxsplit=1)[0] for pattern in patterns}
        tails = {pattern: re.split(r"[*?\]]", pattern)[-1] for pattern in patterns if not heads[pattern]}
        begins, ends = ("|".join(map(re.escape, sorted({*parts.values()} - {""}))) for parts in (heads, tails))
        if not all(tails.values()):
            begins = ""
        return re.compile(f"/(?:{begins})"), re.compile(rf"(?:{ends or '(?!)'})[. ]*/")

    @cached_property
    def _files(self) -> re.Pattern[str]:
        return _compile_patterns(self.files)

    @cached_property
    def _allowed(self) -> re.Pattern[str]:
        return _compile_patterns(self.allowed)

    @cached_property
    def _folders(self) -> re.Pattern[str]:
        return _compile_patterns(self.folders)

    @cached_property
    def _workspaces(self) -> list[list[str]]:
        return [_fold_names(inner) for inner in self.workspaces if inner]


def _fold_names(names: Sequence[str]) -> list[str]:
    """Return the names as a case-insensitive file system, or a reader who sees no difference, takes them."""
    return [part for name in names for part in _fold_name(name).split("/")]


def _fold_name(name: str) -> str:
    if name.isascii():
        return name.lower().rstrip(". ")
    visible = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return visible.casefold().rstrip(". ")


def _compile_patterns(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(_fold_name(pattern)) for pattern in patterns) or r"(?!)")
