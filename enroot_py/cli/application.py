"""The click application, made from the table: usage texts, and every command not in a hurry.

click finds the command, prints help and lists what there is. The words of a command are read by
`parse.py` here too, so that there is one set of rules. Usage texts go to stdout, with status 0 when
they were asked for and 1 when they were not.

Source: enroot 4.1.2 enroot.in, enroot::usage().
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from errno import EPIPE

import click

from enroot_py.cli.parse import Arguments, CommandLineError, HelpWanted, find_command, parse
from enroot_py.cli.table import BY_NAME, COMMANDS, GROUPS, Command
from enroot_py.cli.texts.descriptions import DESCRIPTIONS

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def read_command_line(words: Sequence[str]) -> tuple[Command, Arguments] | None:
    """Return the command and its arguments; None if a help text was asked for and printed.

    Raises:
        CommandLineError: after the usage text has been printed.
    """
    try:
        parsed = application().main(list(words), prog_name="enroot", standalone_mode=False)
    except click.UsageError as error:
        if error.ctx is not None:
            click.echo(error.ctx.get_help())
        raise CommandLineError(error.format_message()) from error
    except SystemExit as error:
        # What click does about a reader who is gone, and about nothing else in this mode.
        raise BrokenPipeError(EPIPE, os.strerror(EPIPE)) from error
    return parsed if isinstance(parsed, tuple) else None


def application() -> click.Group:
    """Return the click application."""
    return _Group(
        "enroot",
        "",
        help="Import container images and start them as unprivileged sandboxes.",
        context_settings=_SETTINGS,
        invoke_without_command=True,
        epilog="`enroot COMMAND --help` shows the options of a command, `enroot man COMMAND` all.",
    )


class _Group(click.Group):
    """The commands whose names start with `prefix`."""

    def __init__(self, name: str, prefix: str, **attributes: object) -> None:
        super().__init__(name, callback=self._without_command, **attributes)  # type: ignore[arg-type]
        self.prefix = prefix

    def _without_command(self) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            click.echo(context.get_help())
            raise CommandLineError("Missing command")

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = [command.name for command in COMMANDS if command.name.startswith(self.prefix)]
        words = [name.removeprefix(self.prefix).split()[0] for name in names]
        return list(dict.fromkeys(words))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self.prefix + cmd_name
        if name in GROUPS:
            return _Group(
                cmd_name,
                name + " ",
                help=GROUPS[name] + ".",
                short_help=GROUPS[name],
                context_settings=_SETTINGS,
                invoke_without_command=True,
            )
        return _Command(BY_NAME[name]) if name in BY_NAME else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            click.echo(ctx.get_help())
            find_command([*self.prefix.split(), *args])  # raises, with the nearest name as a hint
        return super().resolve_command(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["COMMAND [ARG...]"]


class _Command(click.Command):
    """One row of the table."""

    def __init__(self, row: Command) -> None:
        options = [
            click.Option(
                [*option.names, option.key],
                help=option.help + ".",
                metavar=option.value or None,
                is_flag=not option.value,
                multiple=option.repeat,
            )
            for option in row.options
        ]
        super().__init__(
            row.name.split()[-1],
            params=list(options),
            help=f"{row.summary}.\n\n{DESCRIPTIONS[row.name].text}",
            short_help=row.summary,
            context_settings=_SETTINGS,
        )
        self.row = row
        self.description = DESCRIPTIONS[row.name]

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[options] [--]", *self.row.operands.split()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        title, rows = self.description.terms
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
        if self.description.examples:
            with formatter.section("Examples"):
                formatter.write_dl([(line, says) for line, says in self.description.examples])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            ctx.obj = parse(self.row, args)
        except HelpWanted:
            click.echo(ctx.get_help())
            ctx.exit(0)
        except CommandLineError:
            click.echo(ctx.get_help())
            raise
        return []

    def invoke(self, ctx: click.Context) -> tuple[Command, Arguments]:
        return self.row, ctx.obj
