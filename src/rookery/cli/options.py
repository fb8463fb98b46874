"""Options that many commands have, so that each has one help text."""

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
no_start_option = click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
project_option = click.option("--project", metavar="PROJECT", help="The project, by id or name.")
