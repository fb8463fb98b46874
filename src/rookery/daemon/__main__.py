"""`python -P -m rookery.daemon COMMAND`: what the command line hands over to. A command imports what it needs."""

import argparse
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Parser = argparse.ArgumentParser
# Adds its arguments, and answers what runs with them.
Command = Callable[[Parser], Callable[[Any], int]]


def _serve(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--project", type=Path)
    parser.add_argument("--project-required", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--foreground", action="store_true")

    def run(given: Any) -> int:
        # All that is imported stays: to look for garbage among it costs a sixth of a start. `serve` turns it on.
        gc.set_threshold(0)
        from rookery.daemon.options import Options
        from rookery.daemon.serve import serve

        flags = [tuple(pair.split("=", 1)) for pair in given.set]
        return serve(
            Options(
                project=given.project,
                project_required=given.project_required,
                flags=[(key, value) for key, value in flags],
                ready_fd=given.ready_fd,
                foreground=given.foreground,
            )
        )

    return run


def _doctor(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--json", action="store_true")

    def run(given: Any) -> int:
        from rookery.daemon.doctor import run_doctor

        return run_doctor(as_json=given.json)

    return run


def _config(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("action", choices=["show", "get", "set", "path"])
    parser.add_argument("--key")
    parser.add_argument("--value")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--project", action="store_true")

    def run(given: Any) -> int:
        from rookery.daemon.configure import run_config

        return run_config(given.action, given.key, given.value, as_json=given.json, in_project=given.project)

    return run


def _model(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")

    def run(given: Any) -> int:
        from rookery.daemon.model import ServeOptions, run_model

        return run_model(ServeOptions(given.script, given.port, given.log, given.check, given.json))

    return run


def _demo(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--pictures", type=Path)
    for flag in ("--once", "--keep", "--json"):
        parser.add_argument(flag, action="store_true")

    def run(given: Any) -> int:
        from rookery.daemon.demo import run_demo

        return run_demo(once=given.once, keep=given.keep, as_json=given.json, pictures=given.pictures)

    return run


def _bridge(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--workspace")
    parser.add_argument("--of")
    parser.add_argument("--mode")
    parser.add_argument("--no-start", action="store_true")

    def run(given: Any) -> int:
        from rookery.daemon.bridge import run_bridge

        return run_bridge(given.workspace, given.of, given.mode, start=not given.no_start)

    return run


def _client(parser: Parser) -> Callable[[Any], int]:
    for valued in ("--client", "--name", "--scope", "--workspace", "--of", "--transport", "--mode"):
        parser.add_argument(valued)
    for flag in ("--write", "--show-file", "--json", "--no-start"):
        parser.add_argument(flag, action="store_true")

    def run(given: Any) -> int:
        from rookery.daemon.clients import ClientOptions, run_client

        return run_client(
            ClientOptions(
                client=given.client,
                name=given.name,
                workspace=given.workspace,
                project=given.of,
                transport=given.transport,
                mode=given.mode,
                scope=given.scope,
                write=given.write,
                show_file=given.show_file,
                as_json=given.json,
                start=not given.no_start,
            )
        )

    return run


_COMMANDS: dict[str, Command] = {
    "serve": _serve,
    "doctor": _doctor,
    "config": _config,
    "model": _model,
    "demo": _demo,
    "bridge": _bridge,
    "client": _client,
}


def main(argv: list[str] | None = None) -> int:
    parser = Parser(prog="rookery.daemon")
    commands = parser.add_subparsers(required=True)
    for name, command in _COMMANDS.items():
        of_its_own = commands.add_parser(name)
        of_its_own.set_defaults(run=command(of_its_own))
    given = parser.parse_args(argv)
    return given.run(given)


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
