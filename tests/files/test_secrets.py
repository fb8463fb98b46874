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


def _split(names: str) -> list[str]:
    return names.split()


# Common names of files in repositories: those of keys and credentials, and others.
WITHHELD = [
    *_split(
        """
    .env .env.local .env.production .env.development .env.test .env.staging prod.env docker.env app.env .envrc
    .netrc _netrc .npmrc .pypirc .pgpass .htpasswd .git-credentials auth.json opencode.json opencode.jsonc
    credentials .credentials credentials.json .credentials.json credentials.yml credentials.yaml
    credentials.yml.enc credentials.toml credentials.ini credentials.xml credentials.csv credentials.txt
    credentials.db credentials.properties credentials.prod credentials-prod.json credentials_dev.yml
    credentials.local.toml credentials.bak credentials.cfg id_rsa id_dsa id_ecdsa id_ed25519 id_ed25519_sk
    id_rsa.bak id_rsa_work id_ed25519-deploy ID_RSA Id_Ed25519 server.key tls.key private.pem server.pem
    key.pem privkey.pem client-key.pem store.p12 store.pfx store.jks debug.keystore passwords.kdbx putty.ppk
    ca-key.pem ca-private-key.pem ca-cert-key.pem ca-chain-private.pem ca-1.pem server.key.bak server.pem~
    credentials.json.bak credentials.json~ credentials2.json credentials-prod-eu.json credentials_backup
    credentials.sqlite credentials-old.yaml .credentials-work.json credentials~ credentials.yml.old
    id_work id_github id_ed25519_github id_work~ id_work.bak id_rsa.json
    """
    ),
    # Names with spaces.
    "credentials (1).json",
    "credentials - Copy.json",
]
READABLE = _split(
    """
    .env.example .env.sample .env.template .env.dist .env.local.example .env.production.sample .env.defaults
    example.env prod.example.env sample.env env.py env.d.ts environment environment.yml environment.ts
    dotenv.js .environment id_generator.sql id_map.ts id_rsa.pub id_ed25519.pub id_card.svg id_list.csv
    id_token.go id_rsa_test.go identity.json ids.txt id.txt id_mapping.json id_photos.html grid_view.css
    credentials_schema.sql credentials.py credentials.md credentials.test.ts credentials-form.html
    credentials_controller.rb credentials.proto credentials.go CredentialsProvider.java credentials-icon.svg
    credentials_view.xhtml credentials.graphql credential.ts credentials.d.ts add_credentials.sql
    credentialsService.ts credentials.example.json credentials-schema.json credentials_template.yaml id_work.pub
    cacert.pem ca.pem ca-bundle.pem ca-cert.pem ca-certificates.pem ca-chain.pem ca-cert-chain.pem
    cert.pem chain.pem fullchain.pem dhparam.pem
    server.crt server.csr server.crt.pem key keys.ts keys.json keyboard.js keymap.toml monkey.txt turkey.md
    hotkeys.json primary.keys key.go keyring.py auth.ts auth.py authors.json oauth.json authorized.go
    auth.yaml authentication.md auth.service.ts token.go tokens.css tokenizer.json tokens.json secret.go
    secrets.md password.ts passwords.md password_reset.html README.md LICENSE Makefile justfile Dockerfile
    compose.yaml docker-compose.yml package.json package-lock.json tsconfig.json pyproject.toml setup.cfg
    setup.py requirements.txt Cargo.toml Cargo.lock go.mod go.sum pom.xml build.gradle Gemfile Rakefile
    .gitignore .gitattributes .gitmodules .editorconfig .prettierrc .eslintrc.json .dockerignore .nvmrc
    .python-version .tool-versions .pre-commit-config.yaml .mcp.json .babelrc .browserslistrc .flake8
    .clang-format .ruby-version .yarnrc.yml CMakeLists.txt index.html main.c main.rs lib.rs app.tsx
    schema.prisma migration.sql config.yml settings.json values.yaml Chart.yaml main.tf variables.tf
    nginx.conf Procfile tox.ini jest.config.js vite.config.ts CODEOWNERS data.csv logo.png
    """
)


@requirement("files.deny.secrets", "files.read.names", "files.list.dotfiles")
def test_p19_of_common_names_only_those_of_keys_and_credentials_are_withheld(root: SandboxRoot, tree: Tree) -> None:
    assert len(WITHHELD) + len(READABLE) >= 200 and not set(WITHHELD) & set(READABLE)
    # Names that differ in case only are in folders of their own, for systems that see no difference.
    for name in WITHHELD:
        tree.write(f"secret/{name}", b"hush")
    for name in READABLE:
        tree.write(f"open/{name}")
    listed = entries_of(root, "secret", hidden=True).entries
    assert {entry.path.removeprefix("secret/") for entry in listed if entry.denied} == set(WITHHELD)
    listed = entries_of(root, "open", hidden=True).entries
    assert {entry.path.removeprefix("open/") for entry in listed if not entry.denied} == set(READABLE)
    for name in READABLE:
        assert look(root, f"open/{name}").text == "inside\n"
    for name in WITHHELD:
        with pytest.raises(RookeryError) as caught:
            look(root, f"secret/{name}")
        assert caught.value.code == "path-denied"


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
