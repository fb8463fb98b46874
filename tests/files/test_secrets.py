"""Denied file names: P18 to P21."""

import subprocess

import pytest

from rookery.files.sandbox import SandboxRoot
from rookery.files.secrets import DenyRules
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.sandbox import Tree, entries_of, look, paths, refusal

DENIED = {"path-denied"}
SECRETS = [
    *(
        ".env",
        ".env.local",
        ".env.production",
        "prod.env",
        "server.pem",
        "server.key",
        "id_rsa",
        "id_ed25519",
        ".netrc",
    ),
    *(".netrc", ".npmrc", ".pypirc", "credentials", "credentials.json", "aws_credentials/credentials", "store.kdbx"),
    *("auth.json", "opencode.json", "deep/.ENV", "deep/ID_RSA", "deep/Server.PEM"),
]


@requirement("files.deny.secrets")
@pytest.mark.parametrize(
    "path", [".git", ".git/config", ".git/hooks/x", ".GIT/config", "deep/.git", "deep/.Git/HEAD", "git~1/HEAD"]
)
def test_p18_p20_git_is_denied_whether_it_is_there_or_not(root: SandboxRoot, path: str) -> None:
    assert refusal(root, path) == DENIED


@requirement("files.deny.secrets")
def test_p18_the_git_file_of_a_worktree_is_denied_and_marked(tree: Tree, by_kernel: bool) -> None:
    run = ["git", "-C", str(tree.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", "x"], check=True, timeout=30)
    other = tree.root.with_name("other")
    subprocess.run([*run, "worktree", "add", "-q", str(other)], check=True, capture_output=True, timeout=30)
    assert (other / ".git").is_file()
    with SandboxRoot(other, use_openat2=by_kernel) as root:
        assert refusal(root, ".git") == DENIED
        (entry,) = entries_of(root, hidden=True).entries
        assert (entry.path, entry.size, entry.denied) == (".git", None, "it belongs to git")


@requirement("files.deny.secrets")
@pytest.mark.parametrize("path", SECRETS)
def test_p19_p20_secret_files_are_denied_and_marked(root: SandboxRoot, tree: Tree, path: str) -> None:
    tree.write(path, b"hush")
    with pytest.raises(RookeryError, match="files with this name usually contain secrets") as caught:
        look(root, path)
    assert caught.value.code == "path-denied"
    marked = {entry.path: entry for entry in entries_of(root, depth=2, hidden=True).entries}
    assert marked[path].denied == "files with this name usually contain secrets"
    assert marked[path].size is None


@requirement("files.deny.secrets")
def test_p19_a_link_does_not_give_a_secret_another_name(root: SandboxRoot, tree: Tree) -> None:
    tree.write("deep/.env", b"hush")
    tree.link("notes.txt", "deep/.env")
    tree.link("to-git", ".git")
    tree.link("deep/config", "../.git/config")
    for path in ("notes.txt", "to-git/config", "deep/config"):
        with pytest.raises(RookeryError) as caught:
            look(root, path)
        assert caught.value.code == "path-denied"
    assert refusal(root, "to-git") == DENIED


@requirement("files.deny.secrets")
@pytest.mark.parametrize(
    "path", [".env.example", "id_rsa.pub", "credentials.py", "id_map.ts", "environment", "deep/key"]
)
def test_p19_what_only_looks_like_a_secret_can_be_read(root: SandboxRoot, tree: Tree, path: str) -> None:
    tree.write(path)
    assert look(root, path).text == "inside\n"
    assert [entry.path for entry in entries_of(root, depth=2, hidden=True).entries if entry.denied] == [".git"]


@requirement("files.deny.secrets")
def test_p19_the_list_can_be_set_but_git_stays_denied(tree: Tree, by_kernel: bool) -> None:
    tree.write(".env")
    tree.write("Plan.Secret")
    tree.write("vault/x")
    with SandboxRoot(tree.root, DenyRules(files=("*.SECRET",), folders=("vault",)), use_openat2=by_kernel) as root:
        assert look(root, ".env").text == "inside\n"
        assert refusal(root, "vault") == refusal(root, "vault/x") == refusal(root, ".git") == DENIED
        with pytest.raises(RookeryError, match="contain secrets"):
            look(root, "Plan.Secret")
        assert paths(entries_of(root, depth=2)) == ["Plan.Secret", "vault"]
    with SandboxRoot(tree.root, DenyRules(files=(), folders=()), use_openat2=by_kernel) as root:
        assert look(root, "Plan.Secret").text == "inside\n"


@requirement("files.deny.secrets")
@pytest.mark.parametrize("name", ["．git", ".g\u200dit", ".ＧＩＴ", "x／.git", ".git．"])
def test_p21_names_that_look_the_same_are_denied_too(root: SandboxRoot, tree: Tree, name: str) -> None:
    tree.write(f"{name}/config", b"hush")
    assert refusal(root, name) == refusal(root, f"{name}/config") == DENIED


def test_p21_names_are_not_normalised_before_they_are_opened(root: SandboxRoot, tree: Tree) -> None:
    tree.write("e\u0301", b"two characters")
    tree.write("\u00e9", b"one character")
    tree.write("a\u2215b", b"division slash")
    tree.write("..\uff0fx", b"fullwidth slash")
    assert [look(root, name).text for name in ("e\u0301", "\u00e9")] == ["two characters", "one character"]
    assert [look(root, name).text for name in ("a\u2215b", "..\uff0fx")] == ["division slash", "fullwidth slash"]
    assert paths(entries_of(root, hidden=True)) == ["..\uff0fx", ".git", "a\u2215b", "e\u0301", "\u00e9"]


@pytest.mark.parametrize(
    "denied",
    [
        DenyRules(),
        DenyRules(files=("*secret*",), folders=("[ab]*",)),
        DenyRules(files=("[x",), allowed=(), folders=("a?c", "*[xy]")),
        DenyRules(files=(), folders=()),
    ],
)
def test_p19_p20_p21_many_names_at_once_are_judged_as_one_by_one(denied: DenyRules) -> None:
    plain = ["a", "abc", "main.py", "environment", "keys", "monkey", "[x", "xy", "my-secrets", "idea", "README.md"]
    last = [name.rpartition("/")[2] for name in SECRETS]
    odd = [
        f"{name}{end}" for name in (*plain, *last, ".git", ".ssh", ".aws") for end in ("", ".", " ", ". .", "\n", "~")
    ]
    names = [*odd, *(name.upper() for name in odd), "x\n.env", ".env\nx", "\uff0eenv", "id\u200b_rsa"]
    for types in ({}, dict.fromkeys(names, "folder")):
        singly = {name: denied.entry_denial((name,), is_folder=bool(types)) for name in names}
        for one in names:
            assert denied.find_denied("", [one, "z"], types) == ({one: singly[one]} if singly[one] else {}), one
        assert denied.find_denied("", names, types) == {name: why for name, why in singly.items() if why}


def test_workspaces_inside_are_denied_where_they_lie_and_nowhere_else() -> None:
    denied = DenyRules(workspaces=(("trees", "one"),))
    assert denied.find_denied("trees", ["ONE", "two"], {"ONE": "folder"}) == {"ONE": "it belongs to another workspace"}
    assert denied.find_denied("", ["trees", "one"], {"trees": "folder"}) == {}
    assert denied.find_denied("other", ["one"], {"one": "folder"}) == {}
