"""`python -P -m rookery.daemon serve|doctor|config|model|client|bridge`: what the command line hands over to."""

import argparse
import os
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="rookery.daemon")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve")
    serve.add_argument("--project", type=Path)
    serve.add_argument("--project-required", action="store_true")
    serve.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    serve.add_argument("--ready-fd", type=int)
    serve.add_argument("--foreground", action="store_true")
    doctor = commands.add_parser("doctor")
    doctor.add_argument("--json", action="store_true")
    config = commands.add_parser("config")
    config.add_argument("action", choices=["show", "get", "set", "path"])
    config.add_argument("--key")
    config.add_argument("--value")
    config.add_argument("--json", action="store_true")
    config.add_argument("--project", action="store_true")
    model = commands.add_parser("model")
    model.add_argument("--script", type=Path, required=True)
    model.add_argument("--port", type=int, default=0)
    model.add_argument("--log", type=Path)
    model.add_argument("--check", action="store_true")
    model.add_argument("--json", action="store_true")
    bridge = commands.add_parser("bridge")
    bridge.add_argument("--workspace")
    bridge.add_argument("--of")
    bridge.add_argument("--no-start", action="store_true")
    client = commands.add_parser("client")
    for valued in ("--client", "--name", "--scope", "--workspace", "--of", "--transport"):
        client.add_argument(valued)
    for flag in ("--write", "--show-file", "--json", "--no-start"):
        client.add_argument(flag, action="store_true")
    given = parser.parse_args(argv)
    if given.command == "serve":
        from rookery.daemon.options import Options
        from rookery.daemon.serve import serve as run

        flags = [tuple(pair.split("=", 1)) for pair in given.set]
        return run(
            Options(
                project=given.project,
                project_required=given.project_required,
                flags=[(key, value) for key, value in flags],
                ready_fd=given.ready_fd,
                foreground=given.foreground,
            )
        )
    if given.command == "doctor":
        from rookery.daemon.doctor import run_doctor

        return run_doctor(as_json=given.json)
    if given.command == "model":
        from rookery.daemon.model import ServeOptions, run_model

        return run_model(ServeOptions(given.script, given.port, given.log, given.check, given.json))
    if given.command == "bridge":
        from rookery.daemon.bridge import run_bridge

        return run_bridge(given.workspace, given.of, start=not given.no_start)
    if given.command == "client":
        from rookery.daemon.clients import ClientOptions, run_client

        return run_client(
            ClientOptions(
                client=given.client,
                name=given.name,
                workspace=given.workspace,
                project=given.of,
                transport=given.transport,
                scope=given.scope,
                write=given.write,
                show_file=given.show_file,
                as_json=given.json,
                start=not given.no_start,
            )
        )
    from rookery.daemon.configure import run_config

    return run_config(given.action, given.key, given.value, as_json=given.json, in_project=given.project)


if __name__ == "__main__":
    try:
        code = main()
    except BrokenPipeError:
        code = 141
    except KeyboardInterrupt:
        code = 130
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Whoever read it has gone; flushing at exit would only say so again, and change the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
