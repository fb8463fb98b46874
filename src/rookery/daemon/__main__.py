"""`python -P -m rookery.daemon COMMAND`: run a command for the command line. Each command imports its own modules."""

import argparse
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Parser = argparse.ArgumentParser
# Adds the command's arguments to the parser, and returns the function that runs the command with them.
Command = Callable[[Parser], Callable[[Any], int]]


def _serve(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--project", type=Path)
    parser.add_argument("--project-required", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--foreground", action="store_true")

    def run(arguments: Any) -> int:
        # Imported modules stay: scanning them for garbage takes a sixth of a start. `serve` enables it again.
        gc.set_threshold(0)
        from rookery.daemon.options import Options
        from rookery.daemon.serve import serve

        flags = [tuple(pair.split("=", 1)) for pair in arguments.set]
        return serve(
            Options(
                project=arguments.project,
                project_required=arguments.project_required,
                flags=[(key, value) for key, value in flags],
                ready_fd=arguments.ready_fd,
                foreground=arguments.foreground,
            )
        )

    return run


def _doctor(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--json", action="store_true")

    def run(arguments: Any) -> int:
        from rookery.daemon.doctor.checks import run_doctor

        return run_doctor(as_json=arguments.json)

    return run


def _config(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("action", choices=["show", "get", "set", "path"])
    parser.add_argument("--key")
    parser.add_argument("--value")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--project", action="store_true")

    def run(arguments: Any) -> int:
        from rookery.daemon.commands.config import run_config

        return run_config(
            arguments.action, arguments.key, arguments.value, as_json=arguments.json, in_project=arguments.project
        )

    return run


def _model(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--until", type=int)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--env-for", type=int)
    parser.add_argument("--shell", default="sh")

    def run(arguments: Any) -> int:
        from rookery.daemon.commands.model import EnvOptions, ServeOptions, run_env, run_model

        if arguments.env_for is not None:
            return run_env(
                EnvOptions(
                    arguments.script, arguments.env_for, arguments.port, arguments.log, arguments.shell, arguments.json
                )
            )
        serve_options = (arguments.check, arguments.json, arguments.until, arguments.ready_fd)
        return run_model(ServeOptions(arguments.script, arguments.port, arguments.log, *serve_options))

    return run


def _demo(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--pictures", type=Path)
    for flag in ("--once", "--keep", "--json"):
        parser.add_argument(flag, action="store_true")

    def run(arguments: Any) -> int:
        from rookery.daemon.commands.demo import run_demo

        return run_demo(once=arguments.once, keep=arguments.keep, as_json=arguments.json, pictures=arguments.pictures)

    return run


def _bridge(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--workspace")
    parser.add_argument("--of")
    parser.add_argument("--mode")
    parser.add_argument("--no-start", action="store_true")

    def run(arguments: Any) -> int:
        from rookery.daemon.commands.bridge import run_bridge

        return run_bridge(arguments.workspace, arguments.of, arguments.mode, start=not arguments.no_start)

    return run


def _client(parser: Parser) -> Callable[[Any], int]:
    for valued in ("--client", "--name", "--scope", "--workspace", "--of", "--transport", "--mode"):
        parser.add_argument(valued)
    for flag in ("--write", "--show-file", "--json", "--no-start"):
        parser.add_argument(flag, action="store_true")

    def run(arguments: Any) -> int:
        from rookery.daemon.commands.client import ClientOptions, run_client

        return run_client(
            ClientOptions(
                client=arguments.client,
                name=arguments.name,
                workspace=arguments.workspace,
                project=arguments.of,
                transport=arguments.transport,
                mode=arguments.mode,
                scope=arguments.scope,
                write=arguments.write,
                show_file=arguments.show_file,
                as_json=arguments.json,
                start=not arguments.no_start,
            )
        )

    return run


def _scan(parser: Parser) -> Callable[[Any], int]:
    parser.add_argument("--file", type=Path)
    parser.add_argument("--server", action="append", default=[])
    parser.add_argument("--global", dest="everywhere", action="store_true")
    parser.add_argument("--no-start", action="store_true")
    parser.add_argument("--off", action="append", default=[], metavar="RULE=REASON")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sarif", action="store_true")

    def run(arguments: Any) -> int:
        from rookery.daemon.commands.scan import ServerScan, run_scan

        servers = ServerScan(arguments.server, arguments.everywhere, arguments.no_start)
        return run_scan(arguments.file, servers, arguments.off, as_json=arguments.json, as_sarif=arguments.sarif)

    return run


_COMMANDS: dict[str, Command] = {
    "serve": _serve,
    "doctor": _doctor,
    "config": _config,
    "model": _model,
    "demo": _demo,
    "bridge": _bridge,
    "client": _client,
    "scan": _scan,
}


def main(argv: list[str] | None = None) -> int:
    parser = Parser(prog="rookery.daemon")
    commands = parser.add_subparsers(required=True)
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(name)
        subparser.set_defaults(run=command(subparser))
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


if __name__ == "__main__":
    try:
        code = main()
    except BrokenPipeError:
        code = 141
    except OSError as error:
        from rookery.daemon_client.failure import make_os_failure, report_failure

        failure = make_os_failure(error)
        if failure is None:
            raise
        code = report_failure(failure)
    except KeyboardInterrupt:
        code = 130
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader has closed the pipe; flushing at exit would fail again and change the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
