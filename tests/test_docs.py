"""The docs agree with the code: they are complete, name only what exists, and contain no broken link."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rookery.cli.groups import ListByDefaultGroup
from rookery.cli.main import cli
from rookery.daemon.settings.layers import list_settings
from tests.support.requirements import requirement
from tests.test_repository import MAY_IMPORT, WIRES_ALL

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = ROOT / "docs" / "reference"
WRITTEN = [page for page in PAGES if page.parent != GENERATED]

OWN_WORDS = {
    *("project", "workspace", "agent", "session", "server", "upstream", "toolset", "provider", "catalog", "view"),
    *("endpoint", "pin", "lock", "finding", "run", "evidence"),
}
# Not for the glossary, which warns of them, nor for the requirements, whose ids are what they are.
FREE = {"GLOSSARY.md", "requirements.md"}
OTHER_WORDS = re.compile(r"\b(repos?|workdirs?|bots?|backends?|hints?)\b", re.IGNORECASE)

# Paths that the pages for contributors name, and that are not in this repository.
PATHS_ELSEWHERE = {"rookery/metadata.json", "tools/call", "dist/screens/"}

# How errors are made, and which argument is the code.
ERRORS = {"RookeryError": 0, "Failure": 0, "Refusal": 1}
# Those that are not written out in such a call.
PUT_TOGETHER = {"route-not-found", "method-not-allowed", "internal-error", "head-time", "body-time"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from commands(member, (*words, name))


COMMANDS = dict(commands(cli))


@requirement("ops.table.single", "ops.table.parity")
def test_the_generated_pages_and_the_python_client_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_is_documented() -> None:
    page = text_of("docs/reference/settings.md")
    missing = [key for key, one in list_settings().items() if f"### `{key}`" not in page or one.variable not in page]
    assert not missing


def test_every_command_is_in_the_reference_with_a_row_and_a_section() -> None:
    reference = text_of("docs/reference/cli.md")
    for words in COMMANDS:
        name = " ".join(("rookery", *words))
        assert f"# `{name}`\n" in reference
        assert not words or f"| [`{name}`](#{'-'.join(('rookery', *words))}) |" in reference, name


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 130


def codes() -> Iterator[tuple[str, str]]:
    """Each error code that the source raises, as a pattern, and where; parts that are filled in may be any word."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ERRORS:
                continue
            code = node.args[ERRORS[node.func.id]]
            where = f"{name_of(path)}:{node.lineno}"
            if isinstance(code, ast.Constant):
                yield re.escape(str(code.value)), where
            elif isinstance(code, ast.JoinedStr):
                known = [part.value if isinstance(part, ast.Constant) else None for part in code.values]
                yield "".join("[a-z]+" if part is None else re.escape(str(part)) for part in known), where


def test_every_error_code_has_a_remedy_in_the_docs() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| *([^|]+?) *\|$", text_of("docs/guide/troubleshooting.md"), re.MULTILINE)
    documented = {code for code, remedy in rows if remedy}
    raised = [*codes(), *((code, "api or wire") for code in PUT_TOGETHER)]
    assert len(raised) > 20
    missing = [f"{code} ({where})" for code, where in raised if not any(re.fullmatch(code, one) for one in documented)]
    assert not missing


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)\s#]+\.md)", page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link).resolve() for link in links if not link.startswith("http")]
    assert set(PAGES) <= reached


def called(page: Path) -> Iterator[list[str]]:
    """The words of every call of rookery in a page's code, inline or in blocks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(rookery [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in [*lines, *inline]:
        found = re.match(r"(?:\S+=\S+ )*(?:\.venv/bin/)?rookery (.*)", line)
        if found and not line.startswith("rookery is "):
            words = shlex.split(found[1], comments=True)
            # What stands behind -- is another program's.
            yield words[: words.index("--")] if "--" in words else words


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    assert not list(find_wrong_calls(called(page)))


def examples(command: click.Command) -> Iterator[list[str]]:
    """Yield the words of every call of rookery among the examples in a command's help, without what comments it."""
    for line in (command.epilog or "").splitlines():
        if match := re.match(r" *(?:eval \"\$\(|cd \"\$\(|\w+=\$\()?rookery (.*)", line):
            text = re.split(r" {2,}|\)\"? *$", match[1])[0]
            if text.count("'") % 2 == 0 and text.count('"') % 2 == 0:
                words = shlex.split(text)
                end = next((at for at, word in enumerate(words) if word in ("--", "|", ">", "&&")), None)
                yield words[:end]


@pytest.mark.parametrize("words", [words for words, command in COMMANDS.items() if command.epilog], ids=" ".join)
def test_examples_in_the_help_exist(words: tuple[str, ...]) -> None:
    assert not list(find_wrong_calls(examples(COMMANDS[words])))


def find_wrong_calls(calls: Iterator[list[str]]) -> Iterator[str]:
    """Yield a message for each call with a command, an option or a setting that does not exist."""
    settings = list_settings()
    for words in calls:
        names = next((tuple(words[:n]) for n in range(len(words), -1, -1) if tuple(words[:n]) in COMMANDS), ())
        length = len(names)
        if isinstance(COMMANDS[names], ListByDefaultGroup):
            names = (*names, "list")
        known = {*COMMANDS[names].get_help_option_names(click.Context(COMMANDS[names]))} | {"--help", "--version"}
        parameters = COMMANDS[names].params
        known |= {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
        rest = [word.strip("[]") for word in words[length:] if word not in (">", "|")]
        if (not names or isinstance(COMMANDS[names], click.Group)) and not set(rest) <= known:
            yield f"rookery {shlex.join(words)}: there is no such command"
        if unknown := [word for word in rest if re.match(r"--?[a-z]", word) and word not in known]:
            yield f"rookery {shlex.join(words)}: there is no option {unknown[0]}"
        if names in (("config", "get"), ("config", "set")):
            keys = [key for key in rest if not key.startswith("-")][:1]
            if not all(key in settings for key in keys):
                yield f"rookery {shlex.join(words)}: there is no such setting"


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_make_targets_in_the_text_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"^make ([a-z]+)", text, re.MULTILINE)) | set(re.findall(r"`make ([a-z]+)", text))
    assert named <= targets


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_source_files_in_the_text_exist_and_hold_what_is_said_of_them(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    roots = (ROOT, ROOT / "src" / "rookery")
    for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|toml|sql))`", text):
        assert any((root / name).is_file() for root in roots), name
    for word, name in re.findall(r"`(\w+)` (?:and a line to `\w+` )?(?:of|in) `(src/[\w/]+\.py)`", text):
        assert re.search(rf"\b{word}\b", text_of(name)), f"{word} in {name}"


@pytest.mark.parametrize("name", ["docs/ARCHITECTURE.md", "CONTRIBUTING.md", "AGENTS.md", "GLOSSARY.md"])
def test_paths_and_names_in_the_pages_for_contributors_exist(name: str) -> None:
    roots = (ROOT, ROOT / "src" / "rookery")
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    quoted = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text_of(name), flags=re.DOTALL)))
    for path in quoted - PATHS_ELSEWHERE:
        if re.fullmatch(r"[\w.-]+/[\w./-]*", path):
            assert any((root / path).exists() for root in roots), path
    for word in quoted:
        if match := re.fullmatch(r"([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:\.(\w+))?", word):
            assert re.search(rf"\bclass {match[1]}\b", source), word
            assert match[2] is None or re.search(rf"\bdef {match[2]}\b", source), word
        elif re.fullmatch(r"[a-z]+(?:_[a-z]+)+", word):
            assert re.search(rf"\b{word}\b", source), word


def test_the_table_of_packages_says_what_each_may_import() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|[^|]+\| ([^|]+) \|$", text_of("docs/ARCHITECTURE.md"), re.MULTILINE)
    table = {package: set(re.findall(r"`(\w+)`", imports)) for package, imports in rows}
    assert {package: table.get(package) for package in MAY_IMPORT} == MAY_IMPORT
    assert set(table) == set(MAY_IMPORT) | WIRES_ALL


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_name_only_modules_that_exist_and_are_used(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    for name in re.findall(r"[\w/]+\.py\b", text):
        assert (ROOT / "src" / "rookery" / name).is_file(), name
    assert any(f"images/{picture.name})" in page.read_text(encoding="utf-8") for page in WRITTEN)
    assert not OTHER_WORDS.findall(text) and "not there yet" not in text


def test_supported_systems_are_stated_as_the_package_and_ci_have_them() -> None:
    versions = set(re.findall(r'"(3\.\d+)"', text_of(".github/workflows/ci.yml")))
    project = text_of("pyproject.toml")
    assert set(re.findall(r"Python :: (3\.\d+)", project)) == versions and 'requires-python = ">=3.11"' in project
    section = text_of("docs/releases.md").partition("## Supported systems")[2].partition("\n## ")[0]
    assert set(re.findall(r"3\.\d+", section)) == versions
    for page in ("README.md", "CONTRIBUTING.md", "docs/guide/getting-started.md"):
        assert re.search(r"You need Linux, `python3` \(3\.11 or later\)", text_of(page)), page


@requirement("house.words.glossary")
def test_the_glossary_defines_the_words_of_mcp_and_our_own() -> None:
    defined: set[str] = set()
    for words, meaning in re.findall(r"^\| (\*\*.+?) \| ([^|]+) \|", text_of("GLOSSARY.md"), re.MULTILINE):
        assert len(meaning) > 10
        defined |= set(re.findall(r"\*\*(.+?)\*\*", words))
    assert defined >= {"MCP", "MCP server", "MCP host"} | OWN_WORDS


def test_the_glossary_defines_only_words_that_are_used() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(page for page in PAGES if page.name != "GLOSSARY.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources).lower()
    rows = [row for row in text_of("GLOSSARY.md").splitlines() if row.startswith("| **") and "°" not in row]
    words = {word.lower() for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)}
    assert len(words) > 90
    unused = [word for word in words if not re.search(rf"\b{re.escape(word)}", text)]
    assert not unused


def answers() -> Iterator[tuple[str, str]]:
    """Where the source has texts of errors and of tools, and these texts."""
    makers = {*ERRORS, "Tool", "Resource", "Prompt", "PromptArgument", "Meta"}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                given = [*node.args, *(each.value for each in node.keywords)]
                texts = [part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Constant)]
                yield f"{name_of(path)}:{node.lineno}", " ".join(text for text in texts if isinstance(text, str))


@requirement("house.words.glossary")
def test_docs_command_line_and_answers_use_one_word_for_one_thing() -> None:
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES if page.name not in FREE}
    texts |= dict(answers())
    for words, command in COMMANDS.items():
        parameters = [getattr(parameter, "help", None) or "" for parameter in command.params]
        texts[" ".join(("rookery", *words))] = " ".join([command.help or "", command.epilog or "", *parameters])
    found = {name: OTHER_WORDS.findall(text) for name, text in texts.items()}
    assert not {name: words for name, words in found.items() if words}


def test_no_page_names_a_path_of_one_machine() -> None:
    for page in WRITTEN:
        assert not re.search(r"/(root|home/(?!you\b))\w+", page.read_text(encoding="utf-8")), name_of(page)
