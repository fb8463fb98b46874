"""A real agent that the kernel confines: what it needs works, and what is not its own is out of reach."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.confinement import ATTACKS, SECRET
from tests.support.daemon.process import ROOKERY
from tests.support.daemon.sessions import SCRIPT
from tests.support.daemon.system import FullSystem, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

USER = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
WORK = (
    "git commit -q --allow-empty -m inside && git log -1 --format=%s | grep inside",
    "git switch -q -c more && git switch -q - && git branch --list more | grep more",
    'npm --version && mkdir p && cd p && echo "{}" > package.json && npm install --offline --ignore-scripts',
    'python3 -m venv "$TMPDIR/v" && python3 make.py && "$TMPDIR/v/bin/pip" install --no-index ./x1-1-py3-none-any.whl',
    "mktemp",
)
# With the targets that a real daemon has. The others are tried in tests/workspaces/test_confinement.py.
TRIED = [id_ for id_ in ATTACKS if not {"K03", "K04", "K05", "K06", "K07", "K54", "K57", "K58"} & {id_[:3]}]
WHEEL = """
import zipfile
with zipfile.ZipFile("x1-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("x1.py", "")
    wheel.writestr("x1-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: x1\\nVersion: 1\\n")
    wheel.writestr("x1-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("x1-1.dist-info/RECORD", "")
"""
RUN = """
import json, subprocess
done = {}
for name, command in json.load(open("attacks.json")).items():
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    done[name] = [ran.returncode, ran.stdout + ran.stderr]
json.dump(done, open("results.json", "w"))
"""


async def bash(system: FullSystem, session: str, command: str) -> dict[str, Any]:
    """Run a command in the agent's bash tool."""
    given = {"command": command, "description": "try it", "timeout": 300_000}
    return await system.rest(
        "POST", f"/api/sessions/{session}/tools", {"tool": "bash", "args": given, "timeout": 300_000}
    )


@requirement("guard.sandbox.agent", "guard.sandbox.owner")
async def test_a_confined_agent_works_and_every_attack_from_its_bash_fails() -> None:
    home = Path(os.environ["HOME"])
    app = make_repository(home / "src" / "app", {"README.md": "# The app\n"})
    (app / "secret.txt").write_text(SECRET)
    for name in (".ssh/id_ed25519", ".aws/credentials", ".kube/config", ".netrc", ".bashrc", "tool"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(SECRET)
    async with start_system(SCRIPT, app, settings={"ROOKERY_AGENTS_SANDBOX": "workspace"}) as system:
        config = home / ".config" / "opencode" / "opencode.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"permission": {"external_directory": "allow"}}))
        other, fix = await system.create("other"), await system.create("fix")
        (Path(other["path"]) / "notes.txt").write_text(SECRET)
        session = (await system.rest("POST", "/api/sessions", {"directory": fix["path"]}))["id"]
        (Path(fix["path"]) / "make.py").write_text(WHEEL)
        for command in WORK:
            done = await bash(system, session, USER + command)
            assert done["exitCode"] == 0, done

        # A turn of the model works, and its output that looks like a refused access has a line for the model.
        refused = await bash(system, session, f"cat {app}/secret.txt")
        assert refused["exitCode"] != 0 and "ask the user" in refused["output"]
        assert SECRET not in refused["output"]

        variables = {
            "STATE": str(system.daemon.state), "SOCKET": system.daemon.runtime["socket"], "APP": str(app),
            "OUT": str(home), "OTHER": other["path"], "WT": fix["path"], "KEY": str(home / ".ssh" / "id_ed25519"),
            "RC": str(home / ".bashrc"), "VICTIM": str(system.daemon.pid), "PYTHON": "python3",
        }  # fmt: skip
        folder = Path(fix["path"])
        (folder / "attacks.json").write_text(json.dumps({id_: ATTACKS[id_].command for id_ in TRIED}))
        (folder / "run.py").write_text(RUN)
        given = " ".join(f"{name}='{value}'" for name, value in variables.items())
        done = await bash(system, session, f"{given} python3 run.py")
        assert done["exitCode"] == 0, done
        results = json.loads(await asyncio.to_thread((folder / "results.json").read_text))
        assert set(results) == set(TRIED) and len(TRIED) >= 40
        token = system.daemon.token
        for id_, (code, output) in results.items():
            assert code != 0 and SECRET not in output and token not in output, (id_, output)

        # The command line, inside, says where it is.
        done = await bash(system, session, f"{ROOKERY} ws list")
        assert done["exitCode"] != 0 and "confined by a sandbox" in done["output"], done

        # The terminal that shows the session is confined too, and works.
        screen = await system.rest("GET", f"/api/sessions/{session}/screen")
        assert screen["text"].strip()
        pid = (await system.show(fix))["agent"]["pid"]
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
